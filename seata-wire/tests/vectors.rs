//! Bytes written by Apache Seata's own classes: they are read as the expected messages, and the
//! messages are written as these bytes. The files are kept forever.
#![expect(clippy::unwrap_used, clippy::panic, reason = "in a test they are the report")]

mod support;

use handfast_seata_wire::frame::{MessageKind, Piece, head_map, split};
use handfast_seata_wire::message::*;
use handfast_seata_wire::value::{BranchStatus, BranchType, ExceptionCode, GlobalStatus};
use handfast_seata_wire::{
    ClientVersion, DecodedMessage, Dialect, Encoding, FrameVersion, Limits, Package, Serializer,
    decode, encode,
};

use crate::support::{vector, vectors};

const XID: &str = "127.0.0.1:8091:2612341069705662465";
const BRANCH: i64 = 2_612_341_069_705_662_467;
const RESOURCE: &str = "jdbc:mysql://127.0.0.1:3306/demo";
const VERSION: &str = "2.3.0";
const EXTRA_DATA: &str = "ak=null\ndigest=default_tx_group,192.168.1.10,1700000000000\n\
    timestamp=1700000000000\nauthVersion=V4\nvgroup=default_tx_group\nip=192.168.1.10\n";
const CONFLICT: &str = "TransactionException[Global lock acquire failed xid = \
    127.0.0.1:8091:2612341069705662465 branchId = 2612341069705662467]";

fn client(extra_data: &str) -> Register {
    Register {
        version: VERSION.to_owned(),
        application_id: "demo-app".to_owned(),
        transaction_service_group: "default_tx_group".to_owned(),
        extra_data: extra_data.to_owned(),
    }
}

fn registered(outcome: Result<(), &str>) -> Registered {
    Registered { outcome: outcome.map_err(str::to_owned), version: VERSION.to_owned() }
}

fn register(resource: &str, lock_key: &str, application_data: &str) -> BranchRegister {
    BranchRegister {
        xid: XID.to_owned(),
        branch_type: BranchType::At,
        resource_id: resource.to_owned(),
        lock_key: lock_key.to_owned(),
        application_data: application_data.to_owned(),
    }
}

fn conflict(message: &str) -> Message {
    let failure =
        RequestFailure { message: message.to_owned(), code: ExceptionCode::LockKeyConflict };
    Message::BranchRegisterResult(BranchRegistered { result: Err(failure), branch_id: 0 })
}

fn begin() -> Message {
    let name = "purchase(java.lang.String)".to_owned();
    Message::GlobalBegin(GlobalBegin { timeout_ms: 60_000, name })
}

fn begun() -> Message {
    let (xid, extra_data) = (XID.to_owned(), String::new());
    Message::GlobalBeginResult(GlobalBegun { result: Ok(()), xid, extra_data })
}

fn ended(xid: &str) -> Message {
    Message::BranchCommitResult(BranchEnded {
        result: Ok(()),
        xid: xid.to_owned(),
        branch_id: BRANCH,
        status: BranchStatus::PhaseTwoCommitted,
    })
}

fn merged_parts() -> Vec<Message> {
    let report = BranchReport {
        xid: XID.to_owned(),
        branch_id: BRANCH,
        status: BranchStatus::PhaseOneFailed,
        resource_id: String::new(),
        application_data: String::new(),
        branch_type: BranchType::At,
    };
    vec![Message::BranchReport(report), Message::GlobalLockQuery(register("r", "t:1", ""))]
}

fn merged_answers() -> Vec<Message> {
    vec![
        Message::BranchReportResult(BranchReported { result: Ok(()) }),
        Message::GlobalLockQueryResult(GlobalLockQueried { result: Ok(()), lockable: true }),
    ]
}

/// Returns the message of each named frame.
fn meaning(name: &str) -> (MessageKind, i32, Message) {
    use MessageKind::{Answer, OneWay, Ping, Pong, Request};
    let refusal = Err("TM checkAuth fail");
    let application_data = r#"{"autoCommit":false}"#;
    let commit = BranchEnd {
        xid: XID.to_owned(),
        branch_id: BRANCH,
        branch_type: BranchType::At,
        resource_id: RESOURCE.to_owned(),
        application_data: application_data.to_owned(),
    };
    let status = GlobalStatus::Committed;
    match name {
        "register_tm" => (Request, 1, Message::RegisterTm(client(EXTRA_DATA))),
        "register_tm_accepted_v1" | "register_tm_accepted_v2" => {
            (Answer, 1, Message::RegisterTmResult(registered(Ok(()))))
        }
        "register_tm_refused_v1" => (Answer, 1, Message::RegisterTmResult(registered(Err("")))),
        "register_tm_refused_v2" => (Answer, 1, Message::RegisterTmResult(registered(refusal))),
        "register_rm" => {
            let resource_list = RESOURCE.to_owned();
            let rm = RegisterResources { client: client(""), resource_list };
            (Request, 1, Message::RegisterRm(rm))
        }
        "register_rm_accepted" => (Answer, 1, Message::RegisterRmResult(registered(Ok(())))),
        "global_begin" => (Request, 2, begin()),
        "global_begun" => (Answer, 2, begun()),
        "branch_register" => {
            let rows = "stock_tbl:1,2;order_tbl:7_100";
            let branch = register(RESOURCE, rows, application_data);
            (Request, 3, Message::BranchRegister(branch))
        }
        "branch_registered" => {
            let branch = BranchRegistered { result: Ok(()), branch_id: BRANCH };
            (Answer, 3, Message::BranchRegisterResult(branch))
        }
        "branch_register_conflict" => (Answer, 3, conflict(CONFLICT)),
        "branch_commit" => (Request, 1, Message::BranchCommit(commit)),
        "branch_committed" => (Answer, 1, ended(XID)),
        "branch_committed_by_a_client" => (Answer, 1, ended("127.0.0.1:18091:2612341069705662465")),
        "ping" => (Ping, 4, Message::Ping),
        "pong" => (Pong, 4, Message::Pong),
        "ping_with_head_map" => (Ping, 2, Message::Ping),
        "global_commit" => {
            let end = GlobalEnd { xid: XID.to_owned(), extra_data: String::new() };
            (Request, 5, Message::GlobalCommit(end))
        }
        "global_committed" => {
            (Answer, 5, Message::GlobalCommitResult(GlobalStatusAnswer { result: Ok(()), status }))
        }
        "merged" => {
            let merged = MergedWarp { parts: merged_parts(), ids: vec![7, 8] };
            (OneWay, 9, Message::MergedWarp(merged))
        }
        "merge_result" => {
            (Answer, 9, Message::MergeResult(MergeResult { parts: merged_answers() }))
        }
        "batch_result" => {
            let batch = BatchResult { parts: merged_answers(), ids: vec![7, 8] };
            (Answer, 9, Message::BatchResult(batch))
        }
        "branch_reported_alone" => (Answer, 7, merged_answers().remove(0)),
        "lock_queried_alone" => (Answer, 8, merged_answers().remove(1)),
        "undo_log_delete" => {
            let (branch_type, resource_id) = (BranchType::At, RESOURCE.to_owned());
            let delete = UndoLogDelete { branch_type, resource_id, save_days: 7 };
            (OneWay, 10, Message::UndoLogDelete(delete))
        }
        other => panic!("nothing is said of {other}"),
    }
}

fn dialect(name: &str) -> Dialect {
    let frame = if name.ends_with("_v2") { FrameVersion::V2 } else { FrameVersion::V1 };
    Dialect { frame, ..Dialect::java(ClientVersion::parse(VERSION)) }
}

fn read(name: &str, bytes: &[u8]) -> DecodedMessage {
    let limits = Limits::default();
    let Ok(Piece::Frame(frame, length)) = split(bytes, &limits) else { panic!("{name}") };
    assert_eq!(length, bytes.len(), "{name}");
    decode(&frame, &dialect(name), &limits).unwrap()
}

#[test]
fn frames_are_read_with_their_meaning() {
    for (name, bytes) in vectors("frames.hex") {
        let received = read(&name, &bytes);
        let header = received.header;
        assert_eq!((header.kind, header.id, received.message), meaning(&name), "{name}");
    }
}

#[test]
fn messages_are_written_as_seata_writes_them() {
    for (name, bytes) in vectors("frames.hex") {
        if name == "ping_with_head_map" {
            continue; // No head map is ever written.
        }
        let (kind, id, message) = meaning(&name);
        let mut written = Vec::new();
        encode(&message, kind, id, Encoding::default(), &dialect(&name), &mut written).unwrap();
        assert_eq!(written, bytes, "{name}");
    }
}

#[test]
fn a_head_map_is_read() {
    let bytes = vector("frames.hex", "ping_with_head_map");
    let Ok(Piece::Frame(frame, _)) = split(&bytes, &Limits::default()) else { panic!() };
    let entries = head_map::read(frame.head_map).unwrap();
    assert_eq!(entries, [(Some("k".to_owned()), Some("v".to_owned()))]);
}

/// Returns the message of each named protobuf body.
fn protobuf_meaning(name: &str) -> Message {
    match name {
        "global_begin" => begin(),
        "global_begun" => begun(),
        "register_tm_accepted" => Message::RegisterTmResult(registered(Ok(()))),
        "branch_register_conflict" => conflict("x"),
        "merged" => {
            let parts = vec![Message::BranchRegister(register("r", "t:1", ""))];
            Message::MergedWarp(MergedWarp { parts, ids: vec![7] })
        }
        other => panic!("nothing is said of {other}"),
    }
}

#[test]
fn protobuf_bodies_are_read_and_written_as_seata_does() {
    let serializer = Serializer::Protobuf(Package::OrgApacheSeata);
    let encoding = Encoding { serializer, ..Encoding::default() };
    for (name, body) in vectors("protobuf.hex") {
        let message = protobuf_meaning(&name);
        let mut written = Vec::new();
        encode(&message, MessageKind::Request, 1, encoding, &dialect(""), &mut written).unwrap();
        assert_eq!(written[16..], body, "{name}");
        let received = read(&name, &written);
        assert_eq!((received.message, received.encoding), (message, encoding), "{name}");
    }
}

#[test]
fn the_package_of_a_protobuf_name_is_kept() {
    let encoding =
        Encoding { serializer: Serializer::Protobuf(Package::IoSeata), ..Encoding::default() };
    let mut written = Vec::new();
    encode(&begin(), MessageKind::Request, 1, encoding, &dialect(""), &mut written).unwrap();
    assert!(written[20..].starts_with(b"io.seata.protocol.protobuf.GlobalBeginRequestProto"));
    assert_eq!(read("", &written).encoding, encoding);
}

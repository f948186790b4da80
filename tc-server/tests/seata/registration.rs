//! Registrations of clients, and requests before them.

use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::{GlobalBegin, GlobalEnd, Message, RegisterResources};
use handfast_seata_wire::value::{BranchStatus, BranchType, ExceptionCode, GlobalStatus};
use handfast_seata_wire::{
    ClientVersion, Compression, Dialect, Encoding, Family, FrameVersion, Lz4Form, Package,
    Serializer,
};
use handfast_server::serve::RunningServer;

use crate::client::{Client, branch, start, start_with};

const DATABASE: &str = "jdbc:mysql://127.0.0.1:3306/demo";

/// Every encoding whose answers have the same encoding.
fn encodings() -> impl Iterator<Item = Encoding> {
    let serializers = [
        Serializer::Seata,
        Serializer::Protobuf(Package::IoSeata),
        Serializer::Protobuf(Package::OrgApacheSeata),
    ];
    let compressions = [
        Compression::None,
        Compression::Gzip,
        Compression::Zip,
        Compression::Deflater,
        Compression::Zstd,
        Compression::Lz4(Lz4Form::Blocks),
        Compression::Lz4(Lz4Form::Frame),
    ];
    serializers.into_iter().flat_map(move |serializer| {
        compressions.map(|compression| Encoding { serializer, compression })
    })
}

#[tokio::test]
async fn a_client_is_answered_in_the_version_of_its_first_frame() {
    let server = start().await;
    for (frame, byte) in [(FrameVersion::V1, 1), (FrameVersion::V2, 2)] {
        let mut client = Client::connect(&server, "2.3.0").await;
        client.dialect = Dialect { frame, ..client.dialect };
        let registered = client.register_tm().await;
        assert_eq!((registered.outcome, registered.version.as_str()), (Ok(()), "2.5.0"));
        client.send(&Message::Ping, MessageKind::Ping).await;
        assert_eq!(client.read().await.unwrap().header.version, byte);
    }
}

#[tokio::test]
async fn an_unregistered_client_is_served() {
    let server = start().await;
    let mut client = Client::connect(&server, "2.3.0").await;
    assert_eq!(client.ask(Message::Ping).await, Message::Pong);
    let xid = client.begin(60_000).await;
    assert_eq!(client.status(&xid).await, GlobalStatus::Begin);
}

/// Nothing says which process to call for such a branch. The connection ends, so that the client
/// connects again and registers: seata-go may have registered on another one.
#[tokio::test]
async fn a_branch_of_an_unregistered_client_is_refused() {
    use BranchType::{At, Saga, SagaAnnotation, Tcc, Xa};
    let server = start().await;
    for kind in [At, Xa, Tcc, Saga, SagaAnnotation] {
        let mut stranger = Client::connect(&server, "2.3.0").await;
        let xid = stranger.begin(60_000).await;
        let refused = stranger.register_branch(branch(&xid, kind, "deduct", "")).await;
        let code = refused.result.unwrap_err().code;
        assert_eq!(code, ExceptionCode::BranchRegisterFailed, "{kind:?}");
        assert!(stranger.read().await.is_none(), "{kind:?}: the connection ends");
    }
}

#[tokio::test]
async fn a_branch_that_could_never_be_called_is_refused() {
    let server = start().await;
    let mut stranger = Client::connect(&server, "2.3.0").await;
    let xid = stranger.begin(60_000).await;
    let begun = stranger.begin_named("$Saga_order", 60_000).await;
    assert_eq!(begun.result.unwrap_err().code, ExceptionCode::BeginFailed);

    stranger.register_tm().await.outcome.unwrap();
    for kind in [BranchType::At, BranchType::Xa, BranchType::Tcc, BranchType::SagaAnnotation] {
        let refused = stranger.register_branch(branch(&xid, kind, "", "")).await;
        let code = refused.result.unwrap_err().code;
        assert_eq!(code, ExceptionCode::BranchRegisterFailed, "{kind:?} of no resource");
        stranger.register_branch(branch(&xid, kind, "deduct", "")).await.result.unwrap();
    }
}

#[tokio::test]
async fn requests_are_answered_in_their_serializer_and_compressor() {
    let server = start().await;
    for encoding in encodings() {
        let mut client = Client::connect(&server, "2.0.0").await;
        client.encoding = encoding;
        client.register_tm().await.outcome.unwrap();
        let xid = client.begin(60_000).await;
        let end = GlobalEnd { xid, extra_data: String::new() };
        let asked = Message::GlobalStatus(end);
        client.send(&asked, MessageKind::Request).await;
        assert_eq!(client.read().await.unwrap().encoding, encoding);
    }
}

/// A client cannot read a call in another encoding, or with the names of another package.
#[tokio::test]
async fn phase_two_uses_the_encoding_of_the_connection() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.0.0").await;
    for encoding in encodings() {
        let mut rm = Client::connect(&server, "2.0.0").await;
        rm.encoding = encoding;
        rm.register_rm(DATABASE).await.outcome.unwrap();
        let xid = tm.begin(60_000).await;
        rm.branch(&xid, DATABASE, "t:1").await;
        assert_eq!(tm.commit(&xid).await, GlobalStatus::Committed);
        let asked = rm.read().await.unwrap();
        assert_eq!(asked.encoding, encoding);
        let Message::BranchCommit(end) = asked.message else { panic!("{:?}", asked.message) };
        rm.answer_commit(asked.header.id, &end, BranchStatus::PhaseTwoCommitted).await;
        tm.reaches(&xid, GlobalStatus::Committed).await;
    }
}

#[tokio::test]
async fn a_serializer_of_java_objects_is_refused_with_a_reason() {
    let server = start().await;
    let mut client = Client::connect(&server, "2.3.0").await;
    let frame = [0xDA, 0xDA, 1, 0, 0, 0, 17, 0, 16, 0, 22, 0, 0, 0, 0, 1, 0xFF];
    client.send_bytes(&frame).await;
    let Some(received) = client.read().await else { panic!("closed without a word") };
    let Message::RegisterTmResult(refused) = received.message else { panic!("another answer") };
    assert!(refused.version.contains("HF-SEATA-SERIALIZER"), "{}", refused.version);
    assert!(client.read().await.is_none(), "and then the connection is closed");
}

/// The id of an answer is the coordinator's. The client may wait for something else under this id.
#[tokio::test]
async fn an_answer_that_cannot_be_read_is_not_answered() {
    let server = start().await;
    let mut client = Client::connect(&server, "2.3.0").await;
    client.send_bytes(&[0xDA, 0xDA, 1, 0, 0, 0, 17, 0, 16, 1, 22, 0, 0, 0, 0, 1, 0xFF]).await;
    assert!(client.read().await.is_none(), "it is closed");
}

/// Java marks its merged requests as one-way, and seata-go its first request. Both wait for the
/// answer.
#[tokio::test]
async fn requests_are_answered_whatever_their_kind() {
    let server = start().await;
    let mut client = Client::connect(&server, "2.3.0").await;
    let begin = GlobalBegin { timeout_ms: 60_000, name: "buy".to_owned() };
    let id = client.send(&Message::GlobalBegin(begin), MessageKind::OneWay).await;
    let received = client.read().await.unwrap();
    assert_eq!((received.header.id, received.header.kind), (id, MessageKind::Answer));
    assert!(matches!(received.message, Message::GlobalBeginResult(_)));
}

/// Connects seata-go, which has not registered a resource yet.
async fn seata_go(server: &RunningServer) -> Client {
    let mut go = Client::connect(server, "1.1.0").await;
    go.dialect = Dialect { family: Family::Go, ..go.dialect };
    let first = Message::RegisterTm(go.identity());
    let id = go.send(&first, MessageKind::OneWay).await;
    let Message::RegisterTmResult(registered) = go.answer_to(id).await else { panic!() };
    registered.outcome.unwrap();
    go
}

/// A process of seata-go registers its resources once, and not again when it connects again.
#[tokio::test]
async fn a_branch_of_seata_go_shows_its_resource() {
    let server = start().await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut first = seata_go(&server).await;
    first.register_rm(DATABASE).await.outcome.unwrap();
    let [held, later] = [tm.begin(60_000).await, tm.begin(60_000).await];
    first.branch(&held, DATABASE, "t:1").await;
    drop(first);
    let mut next = seata_go(&server).await;
    let (status, ()) = tokio::join!(tm.roll_back(&held), async {
        next.branch(&later, DATABASE, "t:2").await;
        next.carry_out_rollback().await;
    });
    assert_eq!(status, GlobalStatus::Rollbacked);
}

/// A process in Java may register the branch of an action that another one carries out.
#[tokio::test]
async fn a_branch_of_java_shows_no_resource() {
    let server = start_with(|seata| seata.phase_two_wait_ms = 10).await;
    let mut tm = Client::tm(&server, "2.3.0").await;
    let mut caller = Client::tm(&server, "2.3.0").await;
    let xid = tm.begin(60_000).await;
    caller.register_branch(branch(&xid, BranchType::Tcc, "deduct", "")).await.result.unwrap();
    assert_eq!(tm.commit(&xid).await, GlobalStatus::CommitRetrying);
    caller.send(&Message::Ping, MessageKind::Ping).await;
    assert_eq!(caller.read().await.unwrap().message, Message::Pong, "it is not called");
    Client::rm(&server, "2.3.0", "deduct").await.carry_out_commit().await;
    tm.reaches(&xid, GlobalStatus::Committed).await;
}

/// seata-go registers a TM and an RM on one connection, with two versions. It has its own table of
/// codes.
#[tokio::test]
async fn seata_go_is_recognized_by_its_first_registration() {
    let server = start_with(|seata| seata.phase_two_wait_ms = 10).await;
    let mut go = seata_go(&server).await;
    let mut second = go.identity();
    second.version = "1.5.2".to_owned();
    let resource_list = DATABASE.to_owned();
    let rm = RegisterResources { client: second, resource_list };
    let Message::RegisterRmResult(registered) = go.ask(Message::RegisterRm(rm)).await else {
        panic!("another answer")
    };
    registered.outcome.unwrap();
    go.dialect.client = ClientVersion::OLDEST;

    let (held, wanted) = (go.begin(60_000).await, go.begin(60_000).await);
    go.branch(&held, DATABASE, "t:1").await;
    assert_eq!(go.roll_back(&held).await, GlobalStatus::RollbackRetrying);
    let mut conflicting = branch(&wanted, BranchType::At, DATABASE, "t:1");
    conflicting.application_data = r#"{"autoCommit":false}"#.to_owned();
    let refused = go.register_branch(conflicting).await.result.unwrap_err();
    assert_eq!(refused.code, ExceptionCode::LockKeyConflictFailFast, "19, its own number");
    go.carry_out_rollback().await;
    go.reaches(&held, GlobalStatus::Rollbacked).await;
}

#[tokio::test]
async fn unregistering_resources_is_refused() {
    let server = start().await;
    let mut client = Client::rm(&server, "2.7.0", DATABASE).await;
    let resource_list = DATABASE.to_owned();
    let rm = RegisterResources { client: client.identity(), resource_list };
    let Message::UnregisterRmResult(refused) = client.ask(Message::UnregisterRm(rm)).await else {
        panic!("another answer")
    };
    refused.outcome.unwrap_err();
    let xid = client.begin(60_000).await;
    client.branch(&xid, DATABASE, "t:1").await;
    assert_eq!(client.commit(&xid).await, GlobalStatus::Committed);
    client.carry_out_commit().await;
}

/// A refused registration has no effect.
#[tokio::test]
async fn excess_resources_are_refused() {
    let server = start().await;
    let mut client = Client::tm(&server, "2.3.0").await;
    client.dialect.frame = FrameVersion::V1;
    let list = |from: usize, to: usize| {
        (from..to).map(|at| format!("jdbc:{at}")).collect::<Vec<_>>().join(",")
    };
    let refused = client.register_rm(&list(0, 1_025)).await;
    refused.outcome.unwrap_err();
    client.register_rm(&list(0, 1_024)).await.outcome.unwrap();
    client.register_rm(&list(0, 1_024)).await.outcome.expect("they are the same");
    client.register_rm("jdbc:another").await.outcome.unwrap_err();
    let xid = client.begin(60_000).await;
    client.branch(&xid, "jdbc:7", "t:1").await;
    assert_eq!(client.commit(&xid).await, GlobalStatus::Committed);
    assert_eq!(client.carry_out_commit().await.resource_id, "jdbc:7");
}

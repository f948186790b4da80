//! A client of Seata: one connection, which may be a TM, an RM or both.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use handfast_core::Limits;
use handfast_seata_wire::frame::{HEADER_ONLY_BYTES, MessageKind, Piece, split, v0};
use handfast_seata_wire::message::{
    BranchEnd, BranchEnded, BranchRegister, BranchRegistered, BranchReport, GlobalBegin,
    GlobalBegun, GlobalEnd, GlobalReport, GlobalStatusAnswer, Message, Register, RegisterResources,
    Registered, TxResult,
};
use handfast_seata_wire::value::{BranchStatus, BranchType, GlobalStatus};
use handfast_seata_wire::{
    ClientVersion, DecodedMessage, Dialect, Encoding, Family, FrameVersion, decode, encode,
};
use handfast_server::config::{Config, SeataConfig, StoreKind};
use handfast_server::serve::{RunningServer, Server};
use handfast_test_services::until;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The longest that a test waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a coordinator with a port for clients of Seata.
pub(crate) async fn start() -> RunningServer {
    start_with(|_| {}).await
}

pub(crate) async fn start_with(change: impl FnOnce(&mut SeataConfig)) -> RunningServer {
    start_as(|config| change(&mut config.seata)).await
}

/// Starts a coordinator that keeps its records in this directory.
pub(crate) async fn start_at(data_dir: &Path) -> RunningServer {
    let data_dir = data_dir.to_owned();
    start_as(|config| (config.store, config.data_dir) = (StoreKind::Embedded, data_dir)).await
}

pub(crate) async fn start_as(change: impl FnOnce(&mut Config)) -> RunningServer {
    let mut config = Config { limits: Limits::default(), ..Config::tiny() };
    config.seata.enabled = true;
    change(&mut config);
    Server::start(config).await.unwrap()
}

pub(crate) struct Client {
    io: TcpStream,
    bytes: Vec<u8>,
    pub(crate) dialect: Dialect,
    pub(crate) encoding: Encoding,
    pub(crate) application: String,
    version: String,
    id_last: i32,
    /// Frames that arrived while the test waited for another one.
    early: VecDeque<DecodedMessage>,
}

impl Client {
    pub(crate) async fn connect(server: &RunningServer, version: &str) -> Self {
        Self::connect_to(server.seata_address.unwrap(), version).await
    }

    pub(crate) async fn connect_to(address: SocketAddr, version: &str) -> Self {
        let io = TcpStream::connect(address).await.unwrap();
        io.set_nodelay(true).unwrap();
        let client = ClientVersion::parse(version);
        let is_old = client < ClientVersion::new(0, 7, 0);
        let frame = if is_old { FrameVersion::V0 } else { FrameVersion::V1 };
        Self {
            io,
            bytes: Vec::new(),
            dialect: Dialect { frame, client, family: Family::Java },
            encoding: Encoding::default(),
            application: "shop".to_owned(),
            version: version.to_owned(),
            id_last: 0,
            early: VecDeque::new(),
        }
    }

    /// Returns its own address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.io.local_addr().unwrap()
    }

    /// Connects a registered TM.
    pub(crate) async fn tm(server: &RunningServer, version: &str) -> Self {
        let mut client = Self::connect(server, version).await;
        client.register_tm().await.outcome.unwrap();
        client
    }

    /// Connects a registered RM of this resource.
    pub(crate) async fn rm(server: &RunningServer, version: &str, resource: &str) -> Self {
        let mut client = Self::connect(server, version).await;
        client.register_rm(resource).await.outcome.unwrap();
        client
    }

    pub(crate) fn identity(&self) -> Register {
        Register {
            version: self.version.clone(),
            application_id: self.application.clone(),
            transaction_service_group: "default_tx_group".to_owned(),
            extra_data: String::new(),
        }
    }

    pub(crate) async fn register_tm(&mut self) -> Registered {
        let Message::RegisterTmResult(answer) =
            self.ask(Message::RegisterTm(self.identity())).await
        else {
            panic!("another answer")
        };
        answer
    }

    pub(crate) async fn register_rm(&mut self, resources: &str) -> Registered {
        let rm = RegisterResources { client: self.identity(), resource_list: resources.to_owned() };
        let Message::RegisterRmResult(answer) = self.ask(Message::RegisterRm(rm)).await else {
            panic!("another answer")
        };
        answer
    }

    pub(crate) async fn begin(&mut self, timeout_ms: i32) -> String {
        let begun = self.begin_named("buy", timeout_ms).await;
        begun.result.unwrap();
        begun.xid
    }

    pub(crate) async fn begin_named(&mut self, name: &str, timeout_ms: i32) -> GlobalBegun {
        let begin = GlobalBegin { timeout_ms, name: name.to_owned() };
        let Message::GlobalBeginResult(begun) = self.ask(Message::GlobalBegin(begin)).await else {
            panic!("another answer")
        };
        begun
    }

    /// Reports the status of a saga's state machine, and returns the answer.
    pub(crate) async fn report_saga(&mut self, xid: &str, word: GlobalStatus) -> GlobalStatus {
        let (xid, extra_data) = (xid.to_owned(), String::new());
        let report = GlobalReport { xid, extra_data, status: Some(word) };
        standing(self.ask(Message::GlobalReport(report)).await)
    }

    pub(crate) async fn commit(&mut self, xid: &str) -> GlobalStatus {
        standing(self.ask(Message::GlobalCommit(end(xid))).await)
    }

    pub(crate) async fn roll_back(&mut self, xid: &str) -> GlobalStatus {
        standing(self.ask(Message::GlobalRollback(end(xid))).await)
    }

    pub(crate) async fn status(&mut self, xid: &str) -> GlobalStatus {
        standing(self.ask(Message::GlobalStatus(end(xid))).await)
    }

    /// Polls until the global has this status.
    pub(crate) async fn reaches(&mut self, xid: &str, status: GlobalStatus) {
        until("the global has the status", async || self.status(xid).await == status).await;
    }

    pub(crate) async fn branch(&mut self, xid: &str, resource: &str, rows: &str) -> i64 {
        let branch = branch(xid, BranchType::At, resource, rows);
        let registered = self.register_branch(branch).await;
        registered.result.unwrap();
        registered.branch_id
    }

    pub(crate) async fn register_branch(&mut self, branch: BranchRegister) -> BranchRegistered {
        let Message::BranchRegisterResult(registered) =
            self.ask(Message::BranchRegister(branch)).await
        else {
            panic!("another answer")
        };
        registered
    }

    /// Sends a report, and returns the answer.
    pub(crate) async fn report(&mut self, report: BranchReport) -> TxResult {
        let Message::BranchReportResult(reported) = self.ask(Message::BranchReport(report)).await
        else {
            panic!("another answer")
        };
        reported.result
    }

    pub(crate) async fn ask(&mut self, request: Message) -> Message {
        let id = self.send(&request, MessageKind::Request).await;
        self.answer_to(id).await
    }

    pub(crate) async fn send(&mut self, message: &Message, kind: MessageKind) -> i32 {
        self.id_last += 1;
        self.send_as(message, kind, self.id_last).await;
        self.id_last
    }

    /// Returns a request as a frame, with its id.
    pub(crate) fn encoded(&mut self, request: &Message) -> (i32, Vec<u8>) {
        self.id_last += 1;
        let (id, mut frame) = (self.id_last, Vec::new());
        let kind = MessageKind::Request;
        encode(request, kind, id, self.encoding, &self.dialect, &mut frame).unwrap();
        (id, frame)
    }

    pub(crate) async fn send_as(&mut self, message: &Message, kind: MessageKind, id: i32) {
        let mut frame = Vec::new();
        encode(message, kind, id, self.encoding, &self.dialect, &mut frame).unwrap();
        self.send_bytes(&frame).await;
    }

    pub(crate) async fn send_bytes(&mut self, bytes: &[u8]) {
        self.io.write_all(bytes).await.unwrap();
    }

    /// Closes the sending side, and waits until the coordinator has ended the connection.
    pub(crate) async fn hang_up(mut self) {
        self.io.shutdown().await.unwrap();
        while self.read().await.is_some() {}
    }

    pub(crate) async fn answer_to(&mut self, id: i32) -> Message {
        let is_answer =
            |it: &DecodedMessage| it.header.id == id && it.header.kind != MessageKind::Request;
        if let Some(at) = self.early.iter().position(is_answer) {
            return self.early.remove(at).unwrap().message;
        }
        loop {
            let received = self.read().await.expect("the coordinator closed the connection");
            if is_answer(&received) {
                return received.message;
            }
            self.early.push_back(received);
        }
    }

    /// Returns whether the answer arrived before one that the test waited for.
    pub(crate) fn has_come(&self, id: i32) -> bool {
        self.early.iter().any(|it| it.header.id == id && it.header.kind != MessageKind::Request)
    }

    /// Returns the kinds of frames that arrived before those that the test waited for.
    pub(crate) fn early_kinds(&self) -> Vec<MessageKind> {
        self.early.iter().map(|it| it.header.kind).collect()
    }

    /// Waits for the next phase-two request, and returns it with its id.
    pub(crate) async fn called(&mut self) -> (i32, Message) {
        let is_call = |it: &DecodedMessage| it.header.kind == MessageKind::Request;
        if let Some(at) = self.early.iter().position(is_call) {
            let received = self.early.remove(at).unwrap();
            return (received.header.id, received.message);
        }
        loop {
            let received = self.read().await.expect("the coordinator closed the connection");
            if is_call(&received) {
                return (received.header.id, received.message);
            }
            self.early.push_back(received);
        }
    }

    /// Waits for the next request to commit a branch, and answers it as done.
    pub(crate) async fn carry_out_commit(&mut self) -> BranchEnd {
        let (id, call) = self.called().await;
        let Message::BranchCommit(end) = call else { panic!("{call:?}") };
        self.answer_commit(id, &end, BranchStatus::PhaseTwoCommitted).await;
        end
    }

    /// Waits for the next request to roll a branch back, and answers it as done.
    pub(crate) async fn carry_out_rollback(&mut self) -> BranchEnd {
        let (id, call) = self.called().await;
        let Message::BranchRollback(end) = call else { panic!("{call:?}") };
        self.answer_rollback(id, &end, BranchStatus::PhaseTwoRollbacked).await;
        end
    }

    pub(crate) async fn answer_commit(&mut self, id: i32, end: &BranchEnd, status: BranchStatus) {
        let answer = Message::BranchCommitResult(ended(end, status));
        self.send_as(&answer, MessageKind::Answer, id).await;
    }

    pub(crate) async fn answer_rollback(&mut self, id: i32, end: &BranchEnd, status: BranchStatus) {
        let answer = Message::BranchRollbackResult(ended(end, status));
        self.send_as(&answer, MessageKind::Answer, id).await;
    }

    /// Reads the next message. Returns `None` at the end of the connection.
    pub(crate) async fn read(&mut self) -> Option<DecodedMessage> {
        let limits = handfast_seata_wire::Limits::default();
        loop {
            if self.dialect.frame == FrameVersion::V0 {
                if let Some((frame, length)) = v0::split(&self.bytes, &limits).unwrap() {
                    self.bytes.drain(..length);
                    return Some(frame.try_into().unwrap());
                }
                match self.io.read_buf(&mut self.bytes).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => continue,
                }
            }
            match split(&self.bytes, &limits).unwrap() {
                Piece::Frame(frame, length) => {
                    let received = decode(&frame, &self.dialect, &limits).unwrap();
                    self.bytes.drain(..length);
                    return Some(received);
                }
                Piece::HeaderOnly(_) => drop(self.bytes.drain(..HEADER_ONLY_BYTES)),
                Piece::Incomplete => match self.io.read_buf(&mut self.bytes).await {
                    Ok(0) | Err(_) => return None,
                    Ok(_) => {}
                },
            }
        }
    }
}

pub(crate) fn branch(xid: &str, kind: BranchType, resource: &str, rows: &str) -> BranchRegister {
    BranchRegister {
        xid: xid.to_owned(),
        branch_type: kind,
        resource_id: resource.to_owned(),
        lock_key: rows.to_owned(),
        application_data: String::new(),
    }
}

/// Returns a report of a TCC branch. Empty data is not sent.
pub(crate) fn report(
    xid: &str,
    branch_id: i64,
    status: BranchStatus,
    application_data: &str,
) -> BranchReport {
    BranchReport {
        xid: xid.to_owned(),
        branch_id,
        status,
        resource_id: String::new(),
        application_data: application_data.to_owned(),
        branch_type: BranchType::Tcc,
    }
}

pub(crate) fn end(xid: &str) -> GlobalEnd {
    GlobalEnd { xid: xid.to_owned(), extra_data: String::new() }
}

fn ended(end: &BranchEnd, status: BranchStatus) -> BranchEnded {
    BranchEnded { result: Ok(()), xid: end.xid.clone(), branch_id: end.branch_id, status }
}

fn standing(answer: Message) -> GlobalStatus {
    let (Message::GlobalCommitResult(GlobalStatusAnswer { status, .. })
    | Message::GlobalRollbackResult(GlobalStatusAnswer { status, .. })
    | Message::GlobalStatusResult(GlobalStatusAnswer { status, .. })
    | Message::GlobalReportResult(GlobalStatusAnswer { status, .. })) = answer
    else {
        panic!("another answer")
    };
    status
}

/// Returns a page of the admin port.
pub(crate) async fn page(server: &RunningServer, name: &str) -> String {
    let (http, url) = door(server, name);
    http.get(url).send().await.unwrap().text().await.unwrap()
}

/// Sends an action to the admin port.
pub(crate) async fn post(server: &RunningServer, name: &str, json: &'static str) {
    let (http, url) = door(server, name);
    let request = http.post(url).header("content-type", "application/json").body(json);
    request.send().await.unwrap().error_for_status().unwrap();
}

fn door(server: &RunningServer, name: &str) -> (reqwest::Client, String) {
    // Fails only if another test has installed it.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    (http, format!("http://{}/api/v1/{name}", server.admin_address))
}

//! A stream client for tests: sends frames, and splits received frames into messages.

use std::collections::VecDeque;

use handfast_proto::v1 as wire;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_server::embedded::RunningServer;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

pub(crate) const RESOURCE: &str = "sqlite:orders";

/// One stream of one process.
pub(crate) struct Client {
    to: mpsc::Sender<wire::ClientFrame>,
    from: Streaming<wire::ServerFrame>,
    arrived: VecDeque<wire::ServerMessage>,
    id_last: u64,
}

pub(crate) async fn channel(server: &RunningServer) -> Channel {
    let endpoint = format!("http://{}", server.address());
    Endpoint::from_shared(endpoint).unwrap().connect().await.unwrap()
}

pub(crate) async fn unary(server: &RunningServer) -> CoordinatorClient<Channel> {
    CoordinatorClient::new(channel(server).await)
}

pub(crate) fn hello(client_id: &str, resources: &[&str]) -> wire::Hello {
    let resources = resources.iter().map(|id| resource(id)).collect();
    wire::Hello {
        client_id: client_id.to_owned(),
        application: "order-service".to_owned(),
        agent: "test".to_owned(),
        resources,
    }
}

pub(crate) fn resource(id: &str) -> wire::Resource {
    wire::Resource { id: id.to_owned(), mode: wire::Mode::At.into(), label: "test".to_owned() }
}

impl Client {
    /// Opens a stream without sending `Hello`.
    pub(crate) async fn silent(server: &RunningServer) -> Self {
        Self::open(channel(server).await).await
    }

    /// Like [`Self::silent`], on a connection that may have other streams.
    async fn open(channel: Channel) -> Self {
        let (to, frames) = mpsc::channel(16);
        let mut client = CoordinatorClient::new(channel);
        let from = client.connect(ReceiverStream::new(frames)).await.unwrap().into_inner();
        Self { to, from, arrived: VecDeque::new(), id_last: 0 }
    }

    pub(crate) async fn connect(
        server: &RunningServer,
        client_id: &str,
        resources: &[&str],
    ) -> Self {
        Self::over(channel(server).await, client_id, resources).await
    }

    /// Opens a further stream of a connection.
    pub(crate) async fn over(channel: Channel, client_id: &str, resources: &[&str]) -> Self {
        let mut client = Self::open(channel).await;
        let reply = client.ask(Ask::Hello(hello(client_id, resources))).await;
        assert!(matches!(reply, Answer::Hello(_)), "{reply:?}");
        client
    }

    /// Sends one request and waits for its answer.
    pub(crate) async fn ask(&mut self, body: Ask) -> Answer {
        let id = self.send(body).await;
        self.answer(id).await
    }

    /// Sends one request and returns its id.
    pub(crate) async fn send(&mut self, body: Ask) -> u64 {
        self.id_last += 1;
        let message = wire::ClientMessage { id: self.id_last, body: Some(body) };
        self.send_frame(vec![message]).await;
        self.id_last
    }

    pub(crate) async fn send_frame(&mut self, messages: Vec<wire::ClientMessage>) {
        self.to.send(wire::ClientFrame { messages }).await.unwrap();
    }

    /// Waits for the answer to a request. Other messages are kept.
    pub(crate) async fn answer(&mut self, id: u64) -> Answer {
        self.wait_for(|message| message.id == id).await
    }

    /// Waits for a phase-two call.
    pub(crate) async fn call(&mut self) -> wire::PhaseTwoCall {
        let answer =
            self.wait_for(|message| matches!(message.body, Some(Answer::PhaseTwo(_)))).await;
        let Answer::PhaseTwo(call) = answer else { panic!("{answer:?}") };
        call
    }

    /// Waits for the notice that the server stops.
    pub(crate) async fn go_away(&mut self) -> wire::GoAway {
        let answer = self.wait_for(|message| matches!(message.body, Some(Answer::GoAway(_)))).await;
        let Answer::GoAway(notice) = answer else { panic!("{answer:?}") };
        notice
    }

    /// Waits until the server ends the stream.
    pub(crate) async fn end(mut self) -> Result<(), tonic::Status> {
        while self.from.message().await?.is_some() {}
        Ok(())
    }

    /// Returns whether the answer to a request has arrived early.
    pub(crate) fn has_arrived(&self, id: u64) -> bool {
        self.arrived.iter().any(|message| message.id == id)
    }

    async fn wait_for(&mut self, wanted: impl Fn(&wire::ServerMessage) -> bool) -> Answer {
        loop {
            if let Some(at) = self.arrived.iter().position(&wanted) {
                return self.arrived.remove(at).unwrap().body.unwrap();
            }
            let frame = self.from.message().await.unwrap().expect("the stream goes on");
            self.arrived.extend(frame.messages);
        }
    }

    pub(crate) async fn begin(&mut self) -> String {
        let answer = self.ask(begin()).await;
        let Answer::Begin(reply) = answer else { panic!("{answer:?}") };
        reply.xid
    }

    /// Registers a branch on one row of `orders`.
    pub(crate) async fn register(&mut self, xid: &str, branch: u64, row: &str) -> u64 {
        let answer = self.ask(register(xid, branch, row, 0)).await;
        let Answer::RegisterBranch(reply) = answer else { panic!("{answer:?}") };
        reply.fencing_token
    }

    pub(crate) async fn finish(&mut self, call: &wire::PhaseTwoCall) {
        self.send(Ask::Finished(done(call))).await;
    }
}

pub(crate) fn begin() -> Ask {
    Ask::Begin(wire::BeginRequest {
        application: "order-service".to_owned(),
        name: "place-order".to_owned(),
        timeout_ms: 0,
        ..wire::BeginRequest::default()
    })
}

pub(crate) fn registration(
    xid: &str,
    branch: u64,
    row: &str,
    wait_ms: u64,
) -> wire::RegisterBranchRequest {
    wire::RegisterBranchRequest {
        xid: xid.to_owned(),
        branch_id: branch,
        resource_id: RESOURCE.to_owned(),
        mode: wire::Mode::At.into(),
        rows: vec![wire::RowKeys {
            table: "orders".to_owned(),
            mode: wire::LockMode::Exclusive.into(),
            keys: vec![format!("{}:{row}", row.len()).into_bytes()],
            ..wire::RowKeys::default()
        }],
        wait: Some(wire::LockWait { timeout_ms: wait_ms, holding: wire::Holding::Nothing.into() }),
        application_data: b"data".to_vec(),
        client_id: String::new(),
        traceparent: String::new(),
        is_last: false,
        may_be_lost: false,
    }
}

pub(crate) fn register(xid: &str, branch: u64, row: &str, wait_ms: u64) -> Ask {
    Ask::RegisterBranch(registration(xid, branch, row, wait_ms))
}

pub(crate) fn ending(
    xid: &str,
    decision: wire::Decision,
    when: wire::ReplyWhen,
) -> wire::EndRequest {
    wire::EndRequest {
        xid: xid.to_owned(),
        decision: decision.into(),
        reply_when: when.into(),
        reason: "test".to_owned(),
        ..wire::EndRequest::default()
    }
}

pub(crate) fn end(xid: &str, decision: wire::Decision, when: wire::ReplyWhen) -> Ask {
    Ask::End(ending(xid, decision, when))
}

pub(crate) fn done(call: &wire::PhaseTwoCall) -> wire::PhaseTwoOutcome {
    outcome(call, || wire::branch_outcome::Result::Done(wire::Done {}))
}

pub(crate) fn outcome(
    call: &wire::PhaseTwoCall,
    result: impl Fn() -> wire::branch_outcome::Result,
) -> wire::PhaseTwoOutcome {
    let branches = call.branches.iter().map(|branch| wire::BranchOutcome {
        xid: branch.xid.clone(),
        branch_id: branch.branch_id,
        decision: call.decision,
        result: Some(result()),
        question: call.question,
    });
    wire::PhaseTwoOutcome { branches: branches.collect() }
}

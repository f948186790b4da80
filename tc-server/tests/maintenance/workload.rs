//! Work that a coordinator has records of: an undecided global with its row, a decided one, a saga
//! that waits, and a named lock.

use std::net::SocketAddr;

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{
    AcquireLockRequest, BeginRequest, ClientFrame, ClientMessage, Decision, EndRequest,
    GetSagaRequest, GlobalStatus, Hello, LockMode, LockToken, Mode, RegisterBranchRequest, RowKeys,
    SagaDefinition, SagaReply, SagaStatus, SagaStep, SagaStepKind, StartSagaRequest,
    acquire_lock_reply,
};
use tokio::sync::mpsc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

const LOCK: &str = "nightly-report";

/// A client of a coordinator.
#[derive(Clone)]
pub(crate) struct Client(CoordinatorClient<Channel>);

/// One stream of a client, for sagas and named locks.
struct Link {
    frames: mpsc::UnboundedSender<ClientFrame>,
    answers: Streaming<handfast_proto::v1::ServerFrame>,
}

/// The work that was begun.
pub(crate) struct Workload {
    open: String,
    decided: String,
    saga: String,
    /// The greatest of all numbers that were given out.
    fence: u64,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Self(CoordinatorClient::new(endpoint.connect().await.unwrap()))
    }

    pub(crate) async fn begin(&mut self) -> Result<String, Status> {
        let request = BeginRequest {
            application: "orders".to_owned(),
            name: "place-order".to_owned(),
            timeout_ms: 600_000,
            ..BeginRequest::default()
        };
        Ok(self.0.begin(request).await?.into_inner().xid)
    }

    /// Registers a branch that locks a row. Returns the fencing token.
    pub(crate) async fn register(&mut self, xid: &str, row: u64) -> Result<u64, Status> {
        let keys = vec![format!("1:{row}").into_bytes()];
        let (table, mode) = ("orders".to_owned(), LockMode::Exclusive.into());
        let rows = RowKeys { table, mode, keys, ..RowKeys::default() };
        let request = RegisterBranchRequest {
            xid: xid.to_owned(),
            branch_id: row,
            resource_id: "sqlite:orders".to_owned(),
            mode: Mode::At.into(),
            rows: vec![rows],
            ..RegisterBranchRequest::default()
        };
        Ok(self.0.register_branch(request).await?.into_inner().fencing_token)
    }

    pub(crate) async fn commit(&mut self, xid: &str) -> Result<GlobalStatus, Status> {
        let request = EndRequest {
            xid: xid.to_owned(),
            decision: Decision::Commit.into(),
            ..EndRequest::default()
        };
        Ok(self.0.end(request).await?.into_inner().status())
    }

    async fn link(&mut self) -> Link {
        let (frames, sent) = mpsc::unbounded_channel();
        let sent = tokio_stream::wrappers::UnboundedReceiverStream::new(sent);
        let hello = Hello { client_id: "client".to_owned(), ..Hello::default() };
        frames.send(frame(Ask::Hello(hello))).unwrap();
        let answers = self.0.connect(sent).await.unwrap().into_inner();
        let mut link = Link { frames, answers };
        assert!(matches!(link.answer().await, Answer::Hello(_)));
        link
    }
}

fn frame(body: Ask) -> ClientFrame {
    ClientFrame { messages: vec![ClientMessage { id: 1, body: Some(body) }] }
}

impl Link {
    async fn ask(&mut self, body: Ask) -> Answer {
        self.frames.send(frame(body)).unwrap();
        self.answer().await
    }

    async fn answer(&mut self) -> Answer {
        let mut frame = self.answers.message().await.unwrap().expect("the stream goes on");
        assert_eq!(frame.messages.len(), 1, "{frame:?}");
        frame.messages.remove(0).body.unwrap()
    }

    async fn start_saga(&mut self) -> String {
        let step = SagaStep {
            name: "pay".to_owned(),
            kind: SagaStepKind::Compensable.into(),
            resource_id: "saga:payments".to_owned(),
            action: "charge".to_owned(),
            input: b"{}".to_vec(),
            ..SagaStep::default()
        };
        let definition = SagaDefinition {
            name: "order".to_owned(),
            steps: vec![step],
            ..SagaDefinition::default()
        };
        let request = StartSagaRequest {
            application: "orders".to_owned(),
            key: "order-7".to_owned(),
            definition: Some(definition),
            traceparent: String::new(),
            labels: [("order".to_owned(), "7".to_owned())].into(),
        };
        self.saga(Ask::StartSaga(request)).await.xid
    }

    async fn saga(&mut self, body: Ask) -> SagaReply {
        let answer = self.ask(body).await;
        let Answer::Saga(reply) = answer else { panic!("{answer:?}") };
        reply
    }

    /// Asks for the named lock. Returns its fencing token if it is granted.
    async fn acquire(&mut self, number: u64) -> Option<u64> {
        let request = AcquireLockRequest {
            name: LOCK.to_owned(),
            token: Some(LockToken { client: vec![0xab; 16], number }),
            label: "job".to_owned(),
            lease_ms: 3_600_000,
            ..AcquireLockRequest::default()
        };
        let Answer::AcquireLock(reply) = self.ask(Ask::AcquireLock(request)).await else {
            panic!("another answer")
        };
        match reply.result.unwrap() {
            acquire_lock_reply::Result::Granted(granted) => Some(granted.fence),
            acquire_lock_reply::Result::Busy(_) => None,
        }
    }
}

impl Workload {
    /// Begins work at a coordinator.
    pub(crate) async fn begin(address: SocketAddr) -> Self {
        let mut client = Client::connect(address).await;
        let (open, decided) = (client.begin().await.unwrap(), client.begin().await.unwrap());
        let of_row = client.register(&open, 1).await.unwrap();
        client.register(&decided, 2).await.unwrap();
        assert_eq!(client.commit(&decided).await.unwrap(), GlobalStatus::Committing);
        let mut link = client.link().await;
        let saga = link.start_saga().await;
        let of_lock = link.acquire(1).await.expect("no other client has it");
        let numbers = [number(&open), number(&decided), number(&saga), of_row, of_lock];
        Self { open, decided, saga, fence: numbers.into_iter().max().unwrap() }
    }

    /// Checks that a coordinator has all of it, and gives out greater numbers.
    pub(crate) async fn check(&self, address: SocketAddr) {
        let mut client = Client::connect(address).await;
        let other = client.begin().await.unwrap();
        assert!(number(&other) > self.fence, "{other} is no later than {}", self.fence);
        let locked = client.register(&other, 1).await.unwrap_err();
        assert_eq!(locked.metadata().get("handfast-code").unwrap(), "HF-TC-ROW-LOCKED");
        assert!(client.register(&other, 3).await.unwrap() > self.fence);
        for global in [&self.decided, &self.open] {
            assert_eq!(client.commit(global).await.unwrap(), GlobalStatus::Committing);
        }
        let mut link = client.link().await;
        let get = GetSagaRequest { xid: self.saga.clone(), ..GetSagaRequest::default() };
        assert_eq!(link.saga(Ask::GetSaga(get)).await.status(), SagaStatus::Running);
        assert_eq!(link.acquire(2).await, None, "the named lock is held");
        assert!(link.acquire(1).await.is_some(), "and its holder holds it");
    }
}

/// Returns the number of an XID.
pub(crate) fn number(xid: &str) -> u64 {
    xid.rsplit_once(':').unwrap().1.parse().unwrap()
}

//! A simulated client process: a TM and the RM of one resource, over the unary calls.

use handfast_proto::v1::branch_outcome::Result as Outcome;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::{
    BeginRequest, BranchOutcome, Decision, DirtyColumn, DirtyRow, Done, EndRequest,
    FinishPhaseTwoRequest, Given, Hello, LockMode, LockWait, Mode, PhaseTwoBranch, PhaseTwoCall,
    PhaseTwoFrame, PhaseTwoOutcome, Refused, RegisterBranchRequest, Resource, Retryable, RowChange,
    RowKeys, RowStanding,
};
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

pub(crate) const RESOURCE: &str = "sqlite:stock";
const CLIENT: &str = "client-1";

pub(crate) struct Application {
    pub(crate) client: CoordinatorClient<Channel>,
    work: Streaming<PhaseTwoFrame>,
}

impl Application {
    pub(crate) async fn connect(address: std::net::SocketAddr) -> Self {
        let stock = Resource {
            id: RESOURCE.to_owned(),
            mode: Mode::At.into(),
            label: "SQLite stock.db".to_owned(),
        };
        Self::connect_with(address, vec![stock]).await
    }

    /// Connects a process that carries out steps of sagas at these resources.
    pub(crate) async fn connect_for_sagas(
        address: std::net::SocketAddr,
        resources: &[&str],
    ) -> Self {
        let resource = |id: &&str| Resource {
            id: (*id).to_owned(),
            mode: Mode::Saga.into(),
            label: format!("sagas at {id}"),
        };
        Self::connect_with(address, resources.iter().map(resource).collect()).await
    }

    async fn connect_with(address: std::net::SocketAddr, resources: Vec<Resource>) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        let mut client = CoordinatorClient::new(endpoint.connect().await.unwrap());
        let hello = Hello {
            client_id: CLIENT.to_owned(),
            application: "order-service".to_owned(),
            agent: "test 1.0".to_owned(),
            resources,
        };
        let work = client.subscribe(hello).await.unwrap().into_inner();
        Self { client, work }
    }

    pub(crate) async fn begin(&mut self, name: &str) -> String {
        self.try_begin(name).await.unwrap()
    }

    pub(crate) async fn try_begin(&mut self, name: &str) -> Result<String, Status> {
        let request = BeginRequest {
            application: "order-service".to_owned(),
            name: name.to_owned(),
            timeout_ms: 0,
            ..BeginRequest::default()
        };
        Ok(self.client.begin(request).await?.into_inner().xid)
    }

    pub(crate) async fn register(
        &mut self,
        xid: &str,
        branch: u64,
        key: &str,
    ) -> Result<(), Status> {
        let request = registration(xid, branch, key, 0);
        self.client.register_branch(request).await.map(drop)
    }

    pub(crate) async fn end(&mut self, xid: &str, decision: Decision) {
        let request =
            EndRequest { xid: xid.to_owned(), decision: decision.into(), ..EndRequest::default() };
        self.client.end(request).await.unwrap();
    }

    /// Waits for the next phase-two call, which names one branch.
    pub(crate) async fn asked(&mut self) -> (PhaseTwoCall, PhaseTwoBranch) {
        let frame = self.work.message().await.unwrap().expect("the coordinator has work");
        let [call] = frame.calls.try_into().expect("one call");
        let [branch] = call.branches.clone().try_into().expect("one branch");
        (call, branch)
    }

    pub(crate) async fn answer(&mut self, call: &PhaseTwoCall, result: Outcome) {
        let branches = call.branches.iter().map(|branch| BranchOutcome {
            xid: branch.xid.clone(),
            branch_id: branch.branch_id,
            decision: call.decision,
            result: Some(result.clone()),
            question: call.question,
        });
        let outcome = Some(PhaseTwoOutcome { branches: branches.collect() });
        let client_id = CLIENT.to_owned();
        let request = FinishPhaseTwoRequest { outcome, client_id };
        self.client.finish_phase_two(request).await.unwrap();
    }

    /// Answers the next call as done.
    pub(crate) async fn finish(&mut self) -> (PhaseTwoCall, PhaseTwoBranch) {
        let (call, branch) = self.asked().await;
        self.answer(&call, Outcome::Done(Done {})).await;
        (call, branch)
    }

    /// Answers the next call, of a step of a saga, with an output.
    pub(crate) async fn give(&mut self, output: &str) -> (PhaseTwoCall, PhaseTwoBranch) {
        let (call, branch) = self.asked().await;
        let output = output.as_bytes().to_vec();
        self.answer(&call, Outcome::Given(Given { output })).await;
        (call, branch)
    }

    /// Refuses the next call, of a step of a saga.
    pub(crate) async fn refuse_step(&mut self, error: &str) {
        let (call, _branch) = self.asked().await;
        let refused = Refused { error: error.to_owned(), ..Refused::default() };
        self.answer(&call, Outcome::Refused(refused)).await;
    }

    /// Fails the next call, of a step of a saga.
    pub(crate) async fn fail_step(&mut self, error: &str) {
        let (call, _branch) = self.asked().await;
        self.answer(&call, Outcome::Retryable(Retryable { error: error.to_owned() })).await;
    }

    /// Meets a dirty write: begins, registers row 42, rolls back, and refuses to undo.
    pub(crate) async fn refuse(&mut self) -> String {
        let xid = self.begin("place-order").await;
        self.register(&xid, 7, "2:42").await.unwrap();
        self.end(&xid, Decision::RollBack).await;
        let (call, _branch) = self.asked().await;
        self.answer(&call, Outcome::Refused(dirty_write())).await;
        xid
    }

    /// Refuses the next call as well.
    pub(crate) async fn refuse_again(&mut self) {
        let (call, _branch) = self.asked().await;
        self.answer(&call, Outcome::Refused(dirty_write())).await;
    }
}

pub(crate) fn registration(
    xid: &str,
    branch: u64,
    key: &str,
    timeout_ms: u64,
) -> RegisterBranchRequest {
    RegisterBranchRequest {
        xid: xid.to_owned(),
        branch_id: branch,
        resource_id: RESOURCE.to_owned(),
        mode: Mode::At.into(),
        rows: vec![RowKeys {
            table: "stock".to_owned(),
            mode: LockMode::Exclusive.into(),
            keys: vec![key.as_bytes().to_vec()],
            ..RowKeys::default()
        }],
        wait: Some(LockWait { timeout_ms, ..LockWait::default() }),
        application_data: Vec::new(),
        client_id: String::new(),
        traceparent: String::new(),
        is_last: false,
        may_be_lost: false,
    }
}

fn dirty_write() -> Refused {
    let column = DirtyColumn {
        name: "units".to_owned(),
        before: Some("10".to_owned()),
        after: Some("7".to_owned()),
        current: Some("3".to_owned()),
    };
    let dirty = DirtyRow {
        table: "stock".to_owned(),
        key: "42".to_owned(),
        columns: vec![column],
        standing: RowStanding::Dirty.into(),
        on_restore_clean: RowChange::Left.into(),
        on_force_before: RowChange::WrittenBack.into(),
    };
    let clean = DirtyRow {
        table: "booking".to_owned(),
        key: "9".to_owned(),
        columns: vec![inserted("units", "3")],
        standing: RowStanding::Clean.into(),
        on_restore_clean: RowChange::Removed.into(),
        on_force_before: RowChange::Removed.into(),
    };
    Refused {
        error: "dirty write".to_owned(),
        rows: vec![dirty, clean],
        rows_total: 120,
        rows_dirty: 1,
        held_events: Some(1),
    }
}

fn inserted(column: &str, value: &str) -> DirtyColumn {
    let value = Some(value.to_owned());
    DirtyColumn { name: column.to_owned(), before: None, after: value.clone(), current: value }
}

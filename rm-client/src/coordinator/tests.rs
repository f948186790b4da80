//! An RM against a real coordinator: resources, branches and phase two over the link.

use std::collections::VecDeque;
use std::sync::Mutex;

use handfast_proto::v1::branch_outcome::Result as Ended;
use tokio::sync::mpsc;

use super::*;
use crate::connect::Handfast;
use crate::error::RejectionDetail;

#[path = "../../tests/tc/mod.rs"]
mod tc;
use tc::Tc;

const RESOURCE: &str = "test:stock";

/// How a call is answered.
#[derive(Clone, Copy)]
enum Behaviour {
    Done,
    Panics,
    SaysNothing,
}

/// A resource that tells the test of its calls.
struct Stock {
    calls: mpsc::UnboundedSender<PhaseTwoCall>,
    /// For the first calls; later ones are done.
    behaviours: Mutex<VecDeque<Behaviour>>,
}

#[async_trait]
impl BranchHandler for Stock {
    async fn finish(&self, call: PhaseTwoCall) -> Vec<BranchOutcome> {
        let behaviour = self.behaviours.lock().unwrap().pop_front().unwrap_or(Behaviour::Done);
        let done = |branch: &v1::PhaseTwoBranch| BranchOutcome {
            xid: branch.xid.clone(),
            branch_id: branch.branch_id,
            decision: call.decision,
            result: Some(Ended::Done(v1::Done {})),
            question: call.question,
        };
        let outcomes = call.branches.iter().map(done).collect();
        self.calls.send(call).unwrap();
        match behaviour {
            Behaviour::Done => outcomes,
            Behaviour::Panics => panic!("this test panics in phase two"),
            Behaviour::SaysNothing => Vec::new(),
        }
    }
}

/// A process with one resource.
struct Rm {
    handfast: Handfast,
    calls: mpsc::UnboundedReceiver<PhaseTwoCall>,
}

impl Rm {
    async fn start(tc: &Tc, behaviours: &[Behaviour]) -> Self {
        let handfast = Handfast::connect(tc.endpoint())
            .back_off(Duration::from_millis(1), Duration::from_millis(20))
            .await
            .unwrap();
        let (sender, calls) = mpsc::unbounded_channel();
        let behaviours = Mutex::new(behaviours.iter().copied().collect());
        let stock = Arc::new(Stock { calls: sender, behaviours });
        handfast.coordinator().register_resource(resource(), stock);
        Self { handfast, calls }
    }

    fn coordinator(&self) -> &Coordinator {
        self.handfast.coordinator()
    }

    async fn begin(&self) -> String {
        self.coordinator().begin(v1::BeginRequest::default()).await.unwrap().reply.xid
    }

    async fn register(&self, xid: &str, branch_id: u64, row: &str) -> Result<u64, Error> {
        let keys = vec![format!("{}:{row}", row.len()).into_bytes()];
        let rows = vec![v1::RowKeys { table: "stock".to_owned(), keys, ..Default::default() }];
        let request = v1::RegisterBranchRequest {
            xid: xid.to_owned(),
            branch_id,
            resource_id: RESOURCE.to_owned(),
            mode: v1::Mode::At.into(),
            rows,
            ..Default::default()
        };
        let reply = self.coordinator().register_branch(request).await?;
        Ok(reply.fencing_token)
    }

    async fn end(&self, xid: &str, decision: v1::Decision) -> v1::GlobalStatus {
        let request = v1::EndRequest {
            xid: xid.to_owned(),
            decision: decision.into(),
            reply_when: v1::ReplyWhen::Finished.into(),
            reason: "test".to_owned(),
            ..v1::EndRequest::default()
        };
        self.coordinator().end(request, Duration::from_secs(30)).await.unwrap().status()
    }

    /// The branches of the calls so far, in order.
    fn called(&mut self) -> Vec<u64> {
        let mut branches = Vec::new();
        while let Ok(call) = self.calls.try_recv() {
            branches.extend(call.branches.iter().map(|branch| branch.branch_id));
        }
        branches
    }
}

fn resource() -> Resource {
    Resource { id: RESOURCE.to_owned(), mode: v1::Mode::At.into(), label: "test".to_owned() }
}

#[tokio::test]
async fn a_commit_reaches_every_branch() {
    let tc = Tc::start().await;
    let mut rm = Rm::start(&tc, &[]).await;
    let xid = rm.begin().await;
    for branch in [1, 2] {
        rm.register(&xid, branch, &branch.to_string()).await.unwrap();
    }
    assert_eq!(rm.end(&xid, v1::Decision::Commit).await, v1::GlobalStatus::Committed);
    let mut called = rm.called();
    called.sort_unstable();
    assert_eq!(called, [1, 2]);
}

#[tokio::test]
async fn a_rollback_undoes_the_later_branch_first() {
    let tc = Tc::start().await;
    let mut rm = Rm::start(&tc, &[]).await;
    let xid = rm.begin().await;
    for branch in [1, 2, 3] {
        rm.register(&xid, branch, &branch.to_string()).await.unwrap();
    }
    assert_eq!(rm.end(&xid, v1::Decision::RollBack).await, v1::GlobalStatus::RolledBack);
    assert_eq!(rm.called(), [3, 2, 1]);
}

#[tokio::test]
async fn a_call_that_panics_or_answers_nothing_comes_again() {
    let tc = Tc::start().await;
    let mut rm = Rm::start(&tc, &[Behaviour::Panics, Behaviour::SaysNothing]).await;
    let xid = rm.begin().await;
    rm.register(&xid, 1, "a").await.unwrap();
    assert_eq!(rm.end(&xid, v1::Decision::RollBack).await, v1::GlobalStatus::RolledBack);
    assert_eq!(rm.called(), [1, 1, 1]);
}

#[tokio::test]
async fn a_resource_is_known_to_the_next_life_of_the_coordinator() {
    let mut tc = Tc::start().await;
    let mut rm = Rm::start(&tc, &[]).await;
    let xid = rm.begin().await;
    let token = rm.register(&xid, 1, "a").await.unwrap();
    tc.kill().await;
    tc.restart().await;
    // The same registration again is the same answer.
    assert_eq!(rm.register(&xid, 1, "a").await.unwrap(), token);
    assert_eq!(rm.end(&xid, v1::Decision::RollBack).await, v1::GlobalStatus::RolledBack);
    assert_eq!(rm.called(), [1]);
}

#[tokio::test]
async fn a_locked_row_is_refused_with_its_holder() {
    let tc = Tc::start().await;
    let rm = Rm::start(&tc, &[]).await;
    let (holder, other) = (rm.begin().await, rm.begin().await);
    rm.register(&holder, 1, "a").await.unwrap();
    let error = rm.register(&other, 2, "a").await.unwrap_err();
    assert_eq!(error.code(), "HF-TC-ROW-LOCKED");
    let RejectionDetail::RowLocked { holder: named, .. } = error.rejection().unwrap().detail()
    else {
        unreachable!("{error:?}")
    };
    assert_eq!(**named, *holder);
}

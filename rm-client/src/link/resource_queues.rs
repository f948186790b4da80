//! Runs phase-two calls: beside each other across resources, bounded within one.
//!
//! Each resource has three queues. Commits, and votes before a commit, run several at a time;
//! rollbacks one after the other, in the order in which the coordinator sent them. Steps of sagas,
//! in both directions, have no order among each other but that of their sagas. Commits in AT mode
//! only remove undo rows, so that they may take a while: commits that come together become one
//! call.
//!
//! The resource's handler decides what a call does, the coordinator how often it is tried: a call
//! that cannot be carried out is answered as retryable, never dropped.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use handfast_proto::v1::branch_outcome::Result as Ended;
use handfast_proto::v1::{
    BranchOutcome, Decision, Mode, PhaseTwoCall, Question, Resource, Retryable,
};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tracing::Instrument;

use super::call_spans::CallSpans;
use crate::coordinator::BranchHandler;
use crate::limit;

/// How many votes of one resource run at a time. They have a queue of their own, so that a
/// participant that waits for a lock cannot delay the end of the global that holds the lock.
const VOTES_MAX: usize = 4;
/// How many commit calls of one resource run at a time; each may hold many branches.
const COMMITS_MAX: usize = 4;
/// How many calls of one queue may wait. More are answered as retryable at once (BOUNDED).
const WAITING_MAX: usize = 256;
/// How many steps of sagas of one resource run at a time, in each direction. More only wait for
/// connections to the database.
const STEPS_MAX: usize = 64;
/// How many steps may wait: as many as the coordinator gives one process by default.
const STEPS_WAITING_MAX: usize = 4_096;

/// How long commits in AT mode wait for others. Too short: the database syncs its log as often for
/// undo rows that go as for work that is done; too long: the rows stay, and a caller that waits for
/// the end of phase two waits for them, as held events do.
const LINGER: Duration = Duration::from_millis(10);
/// With this many branches commits in AT mode wait for no others (BOUNDED).
const TOGETHER_ENOUGH: usize = 1_024;

/// How long a call may take. A database that went away without a word never answers, and the calls
/// that wait in the queue would wait for as long. Too short: branches of many rows are begun again
/// and again; too long: a queue stands still for longer.
const CALL_MAX: Duration = Duration::from_secs(300);

/// Takes outcomes to the coordinator.
pub(crate) type Outcomes = Arc<dyn Fn(Vec<BranchOutcome>) + Send + Sync>;

/// The queues of every resource of this process. When they are dropped, running calls still end.
#[derive(Debug, Default)]
pub(crate) struct ResourceQueues {
    by_resource: HashMap<(String, i32), Queues>,
}

#[derive(Debug)]
struct Queues {
    votes: mpsc::Sender<PhaseTwoCall>,
    commits: mpsc::Sender<PhaseTwoCall>,
    rollbacks: mpsc::Sender<PhaseTwoCall>,
}

impl ResourceQueues {
    /// Opens the queues of a resource. The queues of an earlier registration end when they are
    /// empty.
    pub(crate) fn open(
        &mut self,
        resource: &Resource,
        handler: &Arc<dyn BranchHandler>,
        outcomes: &Outcomes,
        runtime: &Handle,
    ) {
        let (waiting_max, commits_max, rollbacks_max) = match resource.mode() {
            Mode::Saga => (STEPS_WAITING_MAX, STEPS_MAX, STEPS_MAX),
            Mode::Unspecified | Mode::At | Mode::Tcc | Mode::Xa | Mode::TwoPhase => {
                (WAITING_MAX, COMMITS_MAX, 1)
            }
        };
        let queue = |waiting_max, at_a_time| {
            let (calls, waiting) = mpsc::channel(waiting_max);
            runtime.spawn(run(waiting, at_a_time, Arc::clone(handler), Arc::clone(outcomes)));
            calls
        };
        let commits = if resource.mode() == Mode::At {
            let (calls, waiting) = mpsc::channel(waiting_max);
            runtime.spawn(run_together(waiting, Arc::clone(handler), Arc::clone(outcomes)));
            calls
        } else {
            queue(waiting_max, commits_max)
        };
        let queues = Queues {
            votes: queue(WAITING_MAX, VOTES_MAX),
            commits,
            rollbacks: queue(waiting_max, rollbacks_max),
        };
        self.by_resource.insert((resource.id.clone(), resource.mode), queues);
    }

    /// Queues a call. Each step of a saga becomes a call of its own: a slow one must not delay the
    /// outcomes of others.
    ///
    /// # Errors
    /// The outcomes to send instead, for branches that this process cannot finish.
    pub(crate) fn put(&self, mut call: PhaseTwoCall) -> Result<(), Vec<BranchOutcome>> {
        if call.mode() != Mode::Saga {
            return self.put_call(call);
        }
        let branches = std::mem::take(&mut call.branches).into_iter();
        let calls = branches.map(|branch| PhaseTwoCall { branches: vec![branch], ..call.clone() });
        let refused = calls.filter_map(|call| self.put_call(call).err());
        let refused: Vec<BranchOutcome> = refused.flatten().collect();
        if refused.is_empty() { Ok(()) } else { Err(refused) }
    }

    fn put_call(&self, call: PhaseTwoCall) -> Result<(), Vec<BranchOutcome>> {
        let resource = (call.resource_id.clone(), call.mode);
        let Some(queues) = self.by_resource.get(&resource) else {
            return Err(refuse(&call, "this process has not registered the resource"));
        };
        let queue = match (call.question(), call.decision()) {
            (Question::CanCommit | Question::Prepare | Question::Settle, _) => &queues.votes,
            (Question::None, Decision::Commit) => &queues.commits,
            (Question::None, Decision::RollBack) => &queues.rollbacks,
            (Question::None, Decision::Unspecified) => {
                return Err(refuse(&call, "the call has no decision"));
            }
        };
        // Never waits: the link calls this in a step, under its mutex.
        queue.try_send(call).map_err(|full| refuse(&full.into_inner(), "too many calls wait"))
    }
}

async fn run(
    waiting: mpsc::Receiver<PhaseTwoCall>,
    at_a_time: usize,
    handler: Arc<dyn BranchHandler>,
    outcomes: Outcomes,
) {
    let finish = async |call| outcomes(finish(&*handler, call, CALL_MAX).await);
    ReceiverStream::new(waiting).for_each_concurrent(at_a_time, finish).await;
}

/// Runs commits together that have come while the calls before them ran, or within [`LINGER`]: one
/// DELETE of many undo rows takes little more than one of one.
async fn run_together(
    mut waiting: mpsc::Receiver<PhaseTwoCall>,
    handler: Arc<dyn BranchHandler>,
    outcomes: Outcomes,
) {
    while let Some(mut call) = waiting.recv().await {
        if waiting.is_empty() {
            tokio::time::sleep(LINGER).await;
        }
        while call.branches.len() < TOGETHER_ENOUGH
            && let Ok(next) = waiting.try_recv()
        {
            call.branches.extend(next.branches);
        }
        outcomes(finish(&*handler, call, CALL_MAX).await);
    }
}

/// Runs one call and returns an outcome for each of its branches, also where the handler leaves a
/// branch out, panics, or is dropped because it has taken too long.
async fn finish(
    handler: &dyn BranchHandler,
    call: PhaseTwoCall,
    limit: Duration,
) -> Vec<BranchOutcome> {
    let asked = refuse(&call, "the resource gave no outcome");
    let spans = CallSpans::begin(&call);
    let within = spans.around();
    let finished = limit::within(limit, handler.finish(call)).instrument(within).await;
    let why = match finished {
        Ok(answered) => {
            let answered = add_missing(answered, asked);
            spans.end(&answered);
            return answered;
        }
        Err(cut_off) => format!("phase two {cut_off}"),
    };
    tracing::error!("{why}");
    asked.into_iter().map(|outcome| retryable(outcome, &why)).collect()
}

/// Adds the branches that the resource left out.
fn add_missing(mut answered: Vec<BranchOutcome>, asked: Vec<BranchOutcome>) -> Vec<BranchOutcome> {
    let known: HashSet<(&str, u64)> = answered.iter().map(name).collect();
    let missing = asked.into_iter().filter(|outcome| !known.contains(&name(outcome)));
    let missing: Vec<BranchOutcome> = missing.collect();
    answered.extend(missing);
    answered
}

fn name(outcome: &BranchOutcome) -> (&str, u64) {
    (&outcome.xid, outcome.branch_id)
}

fn refuse(call: &PhaseTwoCall, why: &str) -> Vec<BranchOutcome> {
    let outcome = |branch: &handfast_proto::v1::PhaseTwoBranch| BranchOutcome {
        xid: branch.xid.clone(),
        branch_id: branch.branch_id,
        decision: call.decision,
        question: call.question,
        result: Some(Ended::Retryable(Retryable { error: why.to_owned() })),
    };
    call.branches.iter().map(outcome).collect()
}

fn retryable(outcome: BranchOutcome, why: &str) -> BranchOutcome {
    BranchOutcome { result: Some(Ended::Retryable(Retryable { error: why.to_owned() })), ..outcome }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use handfast_proto::v1::PhaseTwoBranch;
    use tokio::sync::Semaphore;

    use super::*;

    /// A handler that answers nothing before the gate opens.
    struct Gate {
        open: Semaphore,
    }

    #[async_trait::async_trait]
    impl BranchHandler for Gate {
        async fn finish(&self, call: PhaseTwoCall) -> Vec<BranchOutcome> {
            self.open.acquire().await.unwrap().forget();
            refuse(&call, "gate")
        }
    }

    fn call(decision: Decision, branch_id: u64) -> PhaseTwoCall {
        let branch = PhaseTwoBranch { branch_id, ..PhaseTwoBranch::default() };
        PhaseTwoCall {
            resource_id: "r".to_owned(),
            decision: decision.into(),
            branches: vec![branch],
            ..PhaseTwoCall::default()
        }
    }

    fn error(outcomes: &[BranchOutcome]) -> &str {
        match &outcomes[0].result {
            Some(Ended::Retryable(Retryable { error })) => error,
            other => unreachable!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_call_for_an_unknown_resource_is_answered_at_once() {
        let queues = ResourceQueues::default();
        let outcomes = queues.put(call(Decision::Commit, 7)).unwrap_err();
        assert_eq!((outcomes[0].branch_id, outcomes[0].decision()), (7, Decision::Commit));
        assert_eq!(error(&outcomes), "this process has not registered the resource");
    }

    /// The call that waits behind it has its turn.
    #[tokio::test]
    async fn a_call_that_never_ends_is_given_up() {
        let gate = Gate { open: Semaphore::new(0) };
        let given_up = finish(&gate, call(Decision::RollBack, 1), Duration::from_millis(5)).await;
        assert_eq!(given_up[0].branch_id, 1);
        assert_eq!(error(&given_up), "phase two took longer than 5ms");
        gate.open.add_permits(1);
        assert_eq!(error(&finish(&gate, call(Decision::RollBack, 2), CALL_MAX).await), "gate");
    }

    /// A handler that keeps the branches of each call.
    #[derive(Default)]
    struct Calls(Mutex<Vec<Vec<u64>>>);

    #[async_trait::async_trait]
    impl BranchHandler for Calls {
        async fn finish(&self, call: PhaseTwoCall) -> Vec<BranchOutcome> {
            let branches = call.branches.iter().map(|branch| branch.branch_id).collect();
            self.0.lock().unwrap().push(branches);
            Vec::new()
        }
    }

    #[tokio::test]
    async fn at_commits_that_come_together_are_one_call() {
        for (mode, calls) in [(Mode::At, vec![vec![1, 2]]), (Mode::Tcc, vec![vec![1], vec![2]])] {
            let mut queues = ResourceQueues::default();
            let handler = Arc::new(Calls::default());
            let (answer, mut answers) = mpsc::unbounded_channel();
            let outcomes: Outcomes = Arc::new(move |outcomes| answer.send(outcomes).unwrap());
            let shared: Arc<dyn BranchHandler> = Arc::<Calls>::clone(&handler);
            let resource =
                Resource { id: "r".to_owned(), mode: mode.into(), ..Resource::default() };
            queues.open(&resource, &shared, &outcomes, &Handle::current());
            for branch in [1, 2] {
                queues
                    .put(PhaseTwoCall { mode: mode.into(), ..call(Decision::Commit, branch) })
                    .unwrap();
            }
            let mut answered = Vec::new();
            while answered.len() < 2 {
                answered.extend(answers.recv().await.unwrap());
            }
            assert_eq!(answered.iter().map(|it| it.branch_id).collect::<Vec<_>>(), [1, 2]);
            assert_eq!(*handler.0.lock().unwrap(), calls, "{mode:?}");
        }
    }

    #[tokio::test]
    async fn a_full_queue_refuses_and_rollbacks_keep_their_order() {
        let mut queues = ResourceQueues::default();
        let gate = Arc::new(Gate { open: Semaphore::new(0) });
        let ended = Arc::new(Mutex::new(Vec::new()));
        let (sink, handler) = (Arc::clone(&ended), Arc::<Gate>::clone(&gate));
        let outcomes: Outcomes = Arc::new(move |outcomes: Vec<BranchOutcome>| {
            sink.lock().unwrap().extend(outcomes.iter().map(|outcome| outcome.branch_id));
        });
        let resource = Resource { id: "r".to_owned(), ..Resource::default() };
        let handler: Arc<dyn BranchHandler> = handler;
        queues.open(&resource, &handler, &outcomes, &Handle::current());
        let mut taken = Vec::new();
        let full = (0..).find_map(|id| match queues.put(call(Decision::RollBack, id)) {
            Ok(()) => {
                taken.push(id);
                None
            }
            Err(outcomes) => Some(outcomes),
        });
        assert_eq!(error(&full.unwrap()), "too many calls wait");
        gate.open.add_permits(taken.len());
        while ended.lock().unwrap().len() < taken.len() {
            tokio::task::yield_now().await;
        }
        assert_eq!(*ended.lock().unwrap(), taken);
    }
}

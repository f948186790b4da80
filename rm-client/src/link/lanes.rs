//! Runs phase-two calls: beside each other across resources, bounded within one.
//!
//! Each resource has three lanes. Commits, and questions before a commit, run several at a time;
//! rollbacks one after the other, in the order in which the coordinator sent them. Steps of sagas,
//! in both directions, have no order among each other but that of their sagas. Commits in AT mode
//! only tidy up, so that they may take a while: those that come together are one.
//!
//! What a call does is the resource's business, how often it is tried is the coordinator's: a call
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

use crate::coordinator::PhaseTwo;
use crate::limit;

/// How many questions before a commit one resource answers at a time. They have a lane of their
/// own: a participant that waits for a lock does not keep those from ending who hold it.
const VOTES_MAX: usize = 4;
/// How many commit calls of one resource run at a time; each may hold many branches.
const COMMITS_MAX: usize = 4;
/// How many calls of one lane may wait. More are answered as retryable at once (BOUNDED).
const WAITING_MAX: usize = 256;
/// How many steps of sagas of one resource run at a time, in each direction. More only wait for
/// connections to the database.
const STEPS_MAX: usize = 64;
/// How many steps may wait: as many as the coordinator gives one process by default.
const STEPS_WAITING_MAX: usize = 4_096;

/// How long commits in AT mode wait for others. Too short: the database syncs its log as often for
/// undo rows that go as for work that is done; too long: they stay, and who waits for the end of
/// phase two waits for them, as held events do.
const LINGER: Duration = Duration::from_millis(10);
/// With so many branches commits in AT mode wait for no others (BOUNDED).
const TOGETHER_ENOUGH: usize = 1_024;

/// How long a call may take. A database that went away without a word never answers, and whatever
/// waits in the lane would wait for as long. Too short: branches of many rows are begun again and
/// again; too long: a lane stands still for longer.
const CALL_MAX: Duration = Duration::from_secs(300);

/// Takes outcomes to the coordinator.
pub(crate) type Outcomes = Arc<dyn Fn(Vec<BranchOutcome>) + Send + Sync>;

/// The lanes of every resource of this process. Dropping them lets running calls end.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    by_resource: HashMap<(String, i32), Lane>,
}

#[derive(Debug)]
struct Lane {
    votes: mpsc::Sender<PhaseTwoCall>,
    commits: mpsc::Sender<PhaseTwoCall>,
    rollbacks: mpsc::Sender<PhaseTwoCall>,
}

impl Lanes {
    /// Opens the lanes of a resource. An earlier registration's lanes end when they are empty.
    pub(crate) fn open(
        &mut self,
        resource: &Resource,
        phase_two: &Arc<dyn PhaseTwo>,
        outcomes: &Outcomes,
        runtime: &Handle,
    ) {
        let (waiting_max, commits_max, rollbacks_max) = match resource.mode() {
            Mode::Saga => (STEPS_WAITING_MAX, STEPS_MAX, STEPS_MAX),
            Mode::Unspecified | Mode::At | Mode::Tcc | Mode::Xa | Mode::TwoPhase => {
                (WAITING_MAX, COMMITS_MAX, 1)
            }
        };
        let lane = |waiting_max, at_a_time| {
            let (calls, waiting) = mpsc::channel(waiting_max);
            runtime.spawn(run(waiting, at_a_time, Arc::clone(phase_two), Arc::clone(outcomes)));
            calls
        };
        let commits = if resource.mode() == Mode::At {
            let (calls, waiting) = mpsc::channel(waiting_max);
            runtime.spawn(tidy_up(waiting, Arc::clone(phase_two), Arc::clone(outcomes)));
            calls
        } else {
            lane(waiting_max, commits_max)
        };
        let lane = Lane {
            votes: lane(WAITING_MAX, VOTES_MAX),
            commits,
            rollbacks: lane(waiting_max, rollbacks_max),
        };
        self.by_resource.insert((resource.id.clone(), resource.mode), lane);
    }

    /// Puts a call in its lane. Steps of sagas are business of their own each: a slow one must not
    /// keep the others' outcomes back.
    ///
    /// # Errors
    /// The outcomes to send instead, of what cannot be carried out here.
    pub(crate) fn put(&self, mut call: PhaseTwoCall) -> Result<(), Vec<BranchOutcome>> {
        if call.mode() != Mode::Saga {
            return self.put_whole(call);
        }
        let branches = std::mem::take(&mut call.branches).into_iter();
        let calls = branches.map(|branch| PhaseTwoCall { branches: vec![branch], ..call.clone() });
        let refused = calls.filter_map(|call| self.put_whole(call).err());
        let refused: Vec<BranchOutcome> = refused.flatten().collect();
        if refused.is_empty() { Ok(()) } else { Err(refused) }
    }

    fn put_whole(&self, call: PhaseTwoCall) -> Result<(), Vec<BranchOutcome>> {
        let resource = (call.resource_id.clone(), call.mode);
        let Some(lane) = self.by_resource.get(&resource) else {
            return Err(refuse(&call, "this process has not registered the resource"));
        };
        let lane = match (call.question(), call.decision()) {
            // Answered beside each other, as commits are.
            (Question::CanCommit | Question::Prepare, _) => &lane.votes,
            (Question::None, Decision::Commit) => &lane.commits,
            (Question::None, Decision::RollBack) => &lane.rollbacks,
            (Question::None, Decision::Unspecified) => {
                return Err(refuse(&call, "the call has no decision"));
            }
        };
        lane.try_send(call).map_err(|full| refuse(&full.into_inner(), "too many calls wait"))
    }
}

async fn run(
    waiting: mpsc::Receiver<PhaseTwoCall>,
    at_a_time: usize,
    phase_two: Arc<dyn PhaseTwo>,
    outcomes: Outcomes,
) {
    let finish = async |call| outcomes(finish(&*phase_two, call, CALL_MAX).await);
    ReceiverStream::new(waiting).for_each_concurrent(at_a_time, finish).await;
}

/// Carries out together what has come while the calls before were carried out, or within
/// [`LINGER`]: one DELETE of many undo rows takes little more than one of one.
async fn tidy_up(
    mut waiting: mpsc::Receiver<PhaseTwoCall>,
    phase_two: Arc<dyn PhaseTwo>,
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
        outcomes(finish(&*phase_two, call, CALL_MAX).await);
    }
}

/// Carries out one call and answers for each of its branches, also for those that the resource left
/// out, panicked over, or is dropped over since it has taken too long.
async fn finish(
    phase_two: &dyn PhaseTwo,
    call: PhaseTwoCall,
    limit: Duration,
) -> Vec<BranchOutcome> {
    let asked = refuse(&call, "the resource gave no outcome");
    let why = match limit::within(limit, phase_two.finish(call)).await {
        Ok(answered) => return complete(answered, asked),
        Err(cut_off) => format!("phase two {cut_off}"),
    };
    tracing::error!("{why}");
    asked.into_iter().map(|outcome| retryable(outcome, &why)).collect()
}

/// Adds the branches that the resource left out.
fn complete(mut answered: Vec<BranchOutcome>, asked: Vec<BranchOutcome>) -> Vec<BranchOutcome> {
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

    /// Answers nothing before it is let.
    struct Gate {
        open: Semaphore,
    }

    #[async_trait::async_trait]
    impl PhaseTwo for Gate {
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
    async fn what_cannot_be_carried_out_here_is_answered_at_once() {
        let lanes = Lanes::default();
        let outcomes = lanes.put(call(Decision::Commit, 7)).unwrap_err();
        assert_eq!((outcomes[0].branch_id, outcomes[0].decision()), (7, Decision::Commit));
        assert_eq!(error(&outcomes), "this process has not registered the resource");
    }

    /// What waits behind it has its turn.
    #[tokio::test]
    async fn a_call_that_never_ends_is_given_up() {
        let gate = Gate { open: Semaphore::new(0) };
        let given_up = finish(&gate, call(Decision::RollBack, 1), Duration::from_millis(5)).await;
        assert_eq!(given_up[0].branch_id, 1);
        assert_eq!(error(&given_up), "phase two took longer than 5ms");
        gate.open.add_permits(1);
        assert_eq!(error(&finish(&gate, call(Decision::RollBack, 2), CALL_MAX).await), "gate");
    }

    /// Keeps the branches of each call.
    #[derive(Default)]
    struct Calls(Mutex<Vec<Vec<u64>>>);

    #[async_trait::async_trait]
    impl PhaseTwo for Calls {
        async fn finish(&self, call: PhaseTwoCall) -> Vec<BranchOutcome> {
            let branches = call.branches.iter().map(|branch| branch.branch_id).collect();
            self.0.lock().unwrap().push(branches);
            Vec::new()
        }
    }

    #[tokio::test]
    async fn commits_in_at_mode_that_come_together_are_one() {
        for (mode, calls) in [(Mode::At, vec![vec![1, 2]]), (Mode::Tcc, vec![vec![1], vec![2]])] {
            let mut lanes = Lanes::default();
            let phase_two = Arc::new(Calls::default());
            let (answer, mut answers) = mpsc::unbounded_channel();
            let outcomes: Outcomes = Arc::new(move |outcomes| answer.send(outcomes).unwrap());
            let carries_out: Arc<dyn PhaseTwo> = Arc::<Calls>::clone(&phase_two);
            let resource =
                Resource { id: "r".to_owned(), mode: mode.into(), ..Resource::default() };
            lanes.open(&resource, &carries_out, &outcomes, &Handle::current());
            for branch in [1, 2] {
                lanes
                    .put(PhaseTwoCall { mode: mode.into(), ..call(Decision::Commit, branch) })
                    .unwrap();
            }
            let mut answered = Vec::new();
            while answered.len() < 2 {
                answered.extend(answers.recv().await.unwrap());
            }
            assert_eq!(answered.iter().map(|it| it.branch_id).collect::<Vec<_>>(), [1, 2]);
            assert_eq!(*phase_two.0.lock().unwrap(), calls, "{mode:?}");
        }
    }

    #[tokio::test]
    async fn a_full_lane_says_so_and_rollbacks_keep_their_order() {
        let mut lanes = Lanes::default();
        let gate = Arc::new(Gate { open: Semaphore::new(0) });
        let ended = Arc::new(Mutex::new(Vec::new()));
        let (sink, phase_two) = (Arc::clone(&ended), Arc::<Gate>::clone(&gate));
        let outcomes: Outcomes = Arc::new(move |outcomes: Vec<BranchOutcome>| {
            sink.lock().unwrap().extend(outcomes.iter().map(|outcome| outcome.branch_id));
        });
        let resource = Resource { id: "r".to_owned(), ..Resource::default() };
        let phase_two: Arc<dyn PhaseTwo> = phase_two;
        lanes.open(&resource, &phase_two, &outcomes, &Handle::current());
        let mut taken = Vec::new();
        let full = (0..).find_map(|id| match lanes.put(call(Decision::RollBack, id)) {
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

//! Restarts over which the clock has jumped, or time has passed that no coordinator saw: what was
//! to run out has its grace and no more than its length (GRACE), and what is finished is remembered
//! as long as if it had finished by then.

#[expect(dead_code, reason = "what a restart changes is not compared")]
mod support;

use std::sync::Arc;

use handfast_core::{
    BranchId, Command, Coordinator, Correlation, DecidedBy, Decision, Effect, GlobalStatus,
    Holding, Labels, Limits, LoanTerms, LockWait, Mode, NewBranch, Outcome, PhaseTwoOutcome, Reply,
    ReplyWhen, Request, Retry, SagaDefinition, StepDefinition, StepKind, Timestamp, VotingRounds,
    Xid,
};

use crate::support::Store;

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
const DAY: u64 = 24 * HOUR;
/// Where the clock stands at first: a year after its beginning.
const START: u64 = 365 * DAY;
/// By how much the clock of the next process differs, in both directions.
const STEPS: [u64; 5] = [30 * SECOND, 10 * 60 * SECOND, HOUR, DAY, 300 * DAY];

/// A coordinator and where it stores.
struct World {
    limits: Limits,
    store: Store,
    coordinator: Coordinator,
    epoch: u64,
    now: u64,
    asked: u64,
}

impl World {
    fn new() -> Self {
        let (limits, store) = (Limits::default(), Store::default());
        let coordinator = store.load(1, &limits).expect("nothing fits together");
        let mut world = Self { limits, store, coordinator, epoch: 1, now: START, asked: 0 };
        world.coordinator.resume(Timestamp(START), Timestamp(START));
        world
    }

    fn ask(&mut self, command: Command) -> Option<Reply> {
        self.asked += 1;
        let to = Correlation(self.asked);
        let mut out = Outcome::default();
        let request = Request { reply_to: Some(to), command };
        self.coordinator.decide(Timestamp(self.now), request, &mut out);
        self.store.apply(&out.changes);
        self.coordinator.check_invariants().expect("they hold");
        out.effects.into_iter().find_map(|effect| match effect {
            Effect::Reply { to: of, reply, .. } if of == to => Some(reply),
            Effect::Reply { .. }
            | Effect::PhaseTwo(_)
            | Effect::Vote(_)
            | Effect::Hold { .. }
            | Effect::Alert(_) => None,
        })
    }

    /// Another process takes over, whose clock says this.
    fn restart(&mut self, now: u64) {
        (self.epoch, self.now) = (self.epoch + 1, now);
        self.coordinator = self.store.load(self.epoch, &self.limits).expect("all fits together");
        self.coordinator.resume(Timestamp(now), Timestamp(now));
        self.coordinator.check_invariants().expect("they hold");
    }

    /// Lets time pass, tick by tick.
    fn pass(&mut self, ms: u64) {
        let until = self.now + ms;
        while let Some(due) = self.coordinator.next_deadline().filter(|due| due.0 <= until) {
            self.now = self.now.max(due.0);
            self.ask(Command::Tick);
        }
        self.now = until;
    }

    fn begin(&mut self, timeout_ms: u64) -> Xid {
        let (application, name) = ("shop".into(), "order".into());
        let begin = Command::Begin {
            application,
            name,
            timeout_ms: Some(timeout_ms),
            labels: Labels::NONE,
            key: None,
            loan: LoanTerms::default(),
        };
        let Some(Reply::Begun { xid, .. }) = self.ask(begin) else { panic!("it is begun") };
        let branch = NewBranch {
            id: BranchId(7),
            resource: "orders".into(),
            mode: Mode::Tcc,
            rows: Vec::new(),
            application_data: Box::default(),
            registered_by: None,
        };
        let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
        let registered = self.ask(Command::RegisterBranch { xid, branch, wait });
        assert!(matches!(registered, Some(Reply::Registered { .. })), "{registered:?}");
        xid
    }

    fn finished(&mut self) -> Xid {
        let (application, name) = ("shop".into(), "order".into());
        let begin = Command::Begin {
            application,
            name,
            timeout_ms: None,
            labels: Labels::NONE,
            key: None,
            loan: LoanTerms::default(),
        };
        let Some(Reply::Begun { xid, .. }) = self.ask(begin) else { panic!("it is begun") };
        self.ask(Command::End {
            xid,
            decision: Decision::Commit,
            rounds: VotingRounds::PrepareOnly,
            by: DecidedBy::Client,
            reason: "".into(),
            reply_when: ReplyWhen::Decided,
        });
        xid
    }

    /// A saga of one step, with a time for the step or for all of it.
    fn saga(&mut self, key: &str, of_saga: Option<u64>, of_step: Option<u64>) -> Xid {
        let step = StepDefinition {
            name: "pay".into(),
            parent: None,
            group: 0,
            kind: StepKind::Compensable,
            resource: "payments".into(),
            action: "pay".into(),
            input: Arc::default(),
            takes: Vec::new(),
            retry: Retry::DEFAULT,
            timeout_ms: of_step,
        };
        let definition = SagaDefinition {
            name: "order".into(),
            timeout_ms: of_saga,
            steps: vec![step],
            children: Vec::new(),
        };
        let started = self.ask(Command::StartSaga {
            application: "shop".into(),
            key: key.into(),
            definition: Arc::new(definition),
            labels: Labels::NONE,
        });
        let Some(Reply::Saga(saga)) = started else { panic!("{started:?}") };
        saga.xid
    }

    fn status(&self, xid: Xid) -> GlobalStatus {
        self.coordinator.status(xid)
    }
}

/// The moments that the next process may take for now, of one that went down at `at`.
fn jumps(at: u64) -> impl Iterator<Item = u64> {
    STEPS.into_iter().flat_map(move |step| [at + step, at - step])
}

/// Clients need a moment to come back: before that, the jump of a clock has decided for them.
#[test]
fn a_jump_of_the_clock_rolls_nothing_back_before_its_time() {
    for now in jumps(START) {
        let mut world = World::new();
        let (short, long) = (world.begin(60 * SECOND), world.begin(10 * 60 * SECOND));
        world.restart(now);
        world.pass(60 * SECOND - 1);
        assert_eq!(world.status(short), GlobalStatus::Active, "{now}");
        world.pass(1);
        assert_ne!(world.status(short), GlobalStatus::Active, "{now}: it waits for ever");
        world.pass(9 * 60 * SECOND - 1);
        assert_eq!(world.status(long), GlobalStatus::Active, "{now}");
        world.pass(1);
        assert_ne!(world.status(long), GlobalStatus::Active, "{now}: it waits for ever");
    }
}

/// A day's time limit is not begun anew by each restart, and a jump leaves it the grace.
#[test]
fn a_long_time_limit_goes_on_and_has_its_grace() {
    let mut world = World::new();
    let xid = world.begin(12 * HOUR);
    for _ in 0..3 {
        world.pass(3 * HOUR);
        world.restart(world.now + 2 * SECOND);
    }
    world.pass(3 * HOUR - 6 * SECOND - 1);
    assert_eq!(world.status(xid), GlobalStatus::Active);
    world.restart(world.now + 300 * DAY);
    world.pass(HOUR - 1);
    assert_eq!(world.status(xid), GlobalStatus::Active);
    world.pass(1);
    assert_ne!(world.status(xid), GlobalStatus::Active);
}

/// The rows of a client that is gone are locked for no longer than it had asked for, whatever the
/// clock was before it was set right.
#[test]
fn a_clock_that_was_set_right_again_keeps_no_rows() {
    let mut world = World::new();
    world.restart(START + 300 * DAY);
    let xid = world.begin(60 * SECOND);
    world.restart(START);
    let shown = world.coordinator.global(xid).expect("it is there").record;
    assert_eq!(shown.deadline, Timestamp(START + 60 * SECOND), "as it is, for people");
    world.restart(START + 5 * SECOND);
    world.pass(60 * SECOND);
    assert_ne!(world.status(xid), GlobalStatus::Active);
}

/// A late request is told the outcome, for as long as if nothing had happened.
#[test]
fn a_jump_of_the_clock_forgets_nothing() {
    for now in jumps(START) {
        let mut world = World::new();
        let (global, saga) = (world.finished(), world.saga("one", None, None));
        let (branch, decision, outcome) = (BranchId(1), Decision::Commit, PhaseTwoOutcome::Done);
        world.ask(Command::FinishPhaseTwo { xid: saga, branch, decision, outcome });
        assert_eq!(world.status(saga), GlobalStatus::Committed);
        world.restart(now);
        let later = world.finished();
        world.pass(HOUR - 1);
        assert_eq!(world.status(global), GlobalStatus::Committed, "{now}");
        assert_eq!(world.status(saga), GlobalStatus::Committed, "{now}");
        world.pass(1);
        for gone in [global, saga, later] {
            assert_eq!(world.status(gone), GlobalStatus::Unknown, "{now}: it is kept for ever");
        }
    }
}

#[test]
fn a_jump_of_the_clock_takes_no_saga_back_before_its_time() {
    for now in jumps(START) {
        let mut world = World::new();
        let as_a_whole = world.saga("one", Some(60 * SECOND), None);
        let by_its_step = world.saga("two", None, Some(60 * SECOND));
        world.restart(now);
        world.pass(60 * SECOND - 1);
        for xid in [as_a_whole, by_its_step] {
            assert_eq!(world.status(xid), GlobalStatus::Active, "{now}");
        }
        world.pass(1);
        for xid in [as_a_whole, by_its_step] {
            assert_ne!(world.status(xid), GlobalStatus::Active, "{now}: it waits for ever");
        }
    }
}

/// Days are counted on through restarts.
#[test]
fn a_saga_of_days_ends_in_time_despite_daily_restarts() {
    let mut world = World::new();
    let xid = world.saga("one", Some(3 * DAY), None);
    for _ in 0..2 {
        world.pass(DAY);
        world.restart(world.now + 2 * SECOND);
    }
    world.pass(DAY - 4 * SECOND - 1);
    assert_eq!(world.status(xid), GlobalStatus::Active);
    world.pass(1);
    assert_ne!(world.status(xid), GlobalStatus::Active);
}

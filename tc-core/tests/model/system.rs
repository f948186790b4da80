//! The model's states and steps, as `stateright` wants them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::{self, Write};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use handfast_core::{
    Asker, BranchId, ClientId, Command, Coordinator, Correlation, Decision, Epoch, GlobalStatus,
    Holding, Labels, Limits, LoanTerms, LockFilter, Outcome, PageBounds, Request, Timestamp, Xid,
};
use stateright::{Model, Property};

use crate::healing;
use crate::request::{Ask, BranchPlan, GlobalPlan};
use crate::support::{Store, recorded};
use crate::witness::{self, Witness};

/// The undecided globals' timeout.
const TIMEOUT_MS: u64 = 1_000;

/// The work of an exploration, and its findings.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) globals: Vec<GlobalPlan>,
    /// How often each request is sent: a message lost, doubled or sent again.
    pub(crate) sends_max: u8,
    /// How many leaders there are, one after the other.
    pub(crate) epochs_max: u64,
    /// How often time passes.
    pub(crate) ticks_max: u8,
    /// How often the client sends each begin again, while it has no answer about the global.
    pub(crate) begins_max: u8,
    pub(crate) limits: Limits,
    pub(crate) seen: Arc<Seen>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            globals: Vec::new(),
            sends_max: 1,
            epochs_max: 1,
            ticks_max: 0,
            begins_max: 0,
            limits: Limits::default(),
            seen: Arc::default(),
        }
    }
}

/// Events that some set-up must reach, or it does not check what it is for.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) granted_later: Flag,
    pub(crate) expired: Flag,
    pub(crate) deadlock: Flag,
    pub(crate) failed_fast: Flag,
    pub(crate) fenced: Flag,
    /// A row was held by two globals at the same time.
    pub(crate) shared: Flag,
    pub(crate) lost_decision: Flag,
    /// A global was settled by what its database said: committed, and rolled back.
    pub(crate) settled: [Flag; 2],
    /// A branch has committed locally of which no coordinator knows any more.
    pub(crate) lost_branch: Flag,
    /// A later leader has begun a global that an earlier one had begun and not stored.
    pub(crate) begun_anew: Flag,
}

/// Set once and for all.
#[derive(Debug, Default)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One state of everything.
#[derive(Clone, Debug)]
pub(crate) struct System {
    pub(crate) store: Store,
    /// The epoch that the store lets write.
    pub(crate) epoch: u64,
    pub(crate) now: Timestamp,
    /// Oldest first. All but the last are deposed and do not know it yet.
    pub(crate) leaders: Vec<Leader>,
    /// By global, then by request: how often it was sent.
    pub(crate) sent: Vec<Vec<u8>>,
    pub(crate) ticks: u8,
    /// How often each begin was sent again.
    pub(crate) begun_again: Vec<u8>,
    /// The globals of whose requests one was answered, or the begin.
    pub(crate) answered: BTreeSet<usize>,
    /// Phase-two calls that were let out; each may be answered at any time, again and again.
    pub(crate) calls: BTreeSet<Call>,
    /// Globals whose last branch was asked whether it has committed.
    pub(crate) questions: BTreeSet<Xid>,
    /// The last branches whose local transactions have ended, and whether they have committed.
    pub(crate) locally: BTreeMap<Xid, bool>,
    pub(crate) witness: Witness,
}

pub(crate) type Call = (Xid, BranchId, Decision);

/// A coordinator and what it decided that is not durable yet.
#[derive(Clone, Debug)]
pub(crate) struct Leader {
    pub(crate) epoch: u64,
    pub(crate) coordinator: Coordinator,
    pub(crate) undurable: VecDeque<Outcome>,
    /// The registrations that wait, in the order in which they came, with their rows.
    pub(crate) waiting: Vec<Waiting>,
}

/// A registration that waits.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    pub(crate) reply_to: Correlation,
    pub(crate) xid: Xid,
    pub(crate) branch: BranchPlan,
}

/// A possible next event. Leaders are named by their epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A request reaches a leader, which decides it.
    Send { leader: u64, global: usize, ask: Ask },
    /// A begin whose answer the client has not seen reaches a leader again.
    BeginAgain { leader: u64, global: usize },
    /// A batch is written, and its effects leave; or the fence stops it, and the leader with it.
    Write { leader: u64 },
    /// A batch is written, and the leader dies before any effect leaves.
    WriteAndDie { leader: u64 },
    /// The next leader loads the records. The one before it may live on.
    Lead,
    /// A branch carries phase two out, and the answer reaches a leader.
    Answer { leader: u64, call: Call },
    /// The local transaction of a branch that decides commits.
    CommitLocally { global: usize },
    /// The database says whether the last branch has committed, and the answer reaches a leader.
    Settle { leader: u64, global: usize },
    /// Time passes until something is due at a leader.
    Tick { leader: u64 },
}

impl Model for Setup {
    type State = System;
    type Action = Step;

    /// Every global is begun, and nothing is stored yet.
    fn init_states(&self) -> Vec<System> {
        let mut system = System {
            store: Store::default(),
            epoch: 0,
            now: Timestamp(0),
            leaders: Vec::new(),
            sent: self.globals.iter().map(|plan| vec![0; plan.asks().count()]).collect(),
            ticks: 0,
            begun_again: vec![0; self.globals.len()],
            answered: BTreeSet::new(),
            calls: BTreeSet::new(),
            questions: BTreeSet::new(),
            locally: BTreeMap::new(),
            witness: Witness::default(),
        };
        system.lead(self);
        for _ in &self.globals {
            let mut out = Outcome::default();
            let (now, begin) = (system.now, begin(LoanTerms::default()));
            system.leaders[0].coordinator.decide_for(client(), now, begin, &mut out);
        }
        vec![system]
    }

    fn actions(&self, system: &System, steps: &mut Vec<Step>) {
        for leader in &system.leaders {
            let epoch = leader.epoch;
            self.sends(system, epoch, steps);
            self.begins(system, epoch, steps);
            steps.extend(system.calls.iter().map(|&call| Step::Answer { leader: epoch, call }));
            let asked = |global: &usize| system.questions.contains(&xid_of(*global));
            let settle = |global| Step::Settle { leader: epoch, global };
            steps.extend((0..self.globals.len()).filter(asked).map(settle));
            if !leader.undurable.is_empty() {
                steps.push(Step::Write { leader: epoch });
                let writes = leader.undurable.front().is_some_and(|it| !it.changes.is_empty());
                if writes && epoch == system.epoch && epoch < self.epochs_max {
                    steps.push(Step::WriteAndDie { leader: epoch });
                }
            }
            if system.ticks < self.ticks_max && leader.is_due() {
                steps.push(Step::Tick { leader: epoch });
            }
        }
        let decides = |global: &usize| {
            let xid = xid_of(*global);
            system.witness.decides(xid) && !system.locally.contains_key(&xid)
        };
        let commit = |global| Step::CommitLocally { global };
        steps.extend((0..self.globals.len()).filter(decides).map(commit));
        if system.epoch < self.epochs_max {
            steps.push(Step::Lead);
        }
    }

    fn next_state(&self, system: &System, step: Step) -> Option<System> {
        let mut next = system.clone();
        next.take(self, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("nothing forbidden is seen", |_, it: &System| {
                it.witness.broken.is_none()
            }),
            Property::always("the coordinators agree with themselves", |_, it: &System| {
                it.is_sound()
            }),
            Property::always("what was acknowledged is stored", |_, it| {
                witness::acknowledged_is_stored(it)
            }),
            Property::always(
                "no request with database locks waits for a rollback",
                |setup: &Self, it: &System| {
                    setup.globals.iter().all(|plan| plan.holding == Holding::Nothing)
                        || it.leaders.iter().all(Leader::lets_roll_back)
                },
            ),
            Property::always("RECORDED", |setup, it: &System| it.is_recorded(setup)),
            Property::always("everything ends once faults stop", healing::everything_ends),
        ]
    }
}

/// A begin, by the client that is lent XIDs.
pub(crate) fn begin(loan: LoanTerms) -> Request {
    let (application, name) = ("shop".into(), "place-order".into());
    let (timeout_ms, labels, key) = (Some(TIMEOUT_MS), Labels::NONE, None);
    let command = Command::Begin { application, name, timeout_ms, labels, key, loan };
    Request { reply_to: Some(Correlation(0)), command }
}

pub(crate) fn client() -> Asker {
    Asker { client: ClientId(1), application: "shop".into() }
}

impl Setup {
    /// The client sends a begin again only while it has no answer, and within the global's time.
    fn begins(&self, system: &System, leader: u64, steps: &mut Vec<Step>) {
        for (global, &sent) in system.begun_again.iter().enumerate() {
            let is_unanswered = !system.answered.contains(&global);
            if sent < self.begins_max && is_unanswered && system.now < Timestamp(TIMEOUT_MS) {
                steps.push(Step::BeginAgain { leader, global });
            }
        }
    }

    fn sends(&self, system: &System, leader: u64, steps: &mut Vec<Step>) {
        for (global, plan) in self.globals.iter().enumerate() {
            for (ask, &sent) in plan.asks().zip(&system.sent[global]) {
                let is_true =
                    ask != Ask::Report || system.locally.get(&xid_of(global)) == Some(&true);
                // A commit waits for the answer to the begin.
                let is_true = is_true
                    && (self.begins_max == 0
                        || ask != Ask::End(Decision::Commit)
                        || system.answered.contains(&global));
                if sent < self.sends_max && is_true {
                    steps.push(Step::Send { leader, global, ask });
                }
            }
        }
    }
}

impl System {
    fn is_sound(&self) -> bool {
        self.leaders.iter().all(|leader| leader.coordinator.check_invariants().is_ok())
    }

    /// RECORDED: a leader that has nothing left to write is what its records make.
    fn is_recorded(&self, setup: &Setup) -> bool {
        let Some(leader) = self.current().filter(|it| it.undurable.is_empty()) else {
            return true;
        };
        let loaded = self.store.load(self.epoch + 1, &setup.limits);
        loaded.is_ok_and(|loaded| recorded(&leader.coordinator) == recorded(&loaded))
    }

    /// The leader that the store lets write, unless it has died.
    pub(crate) fn current(&self) -> Option<&Leader> {
        self.leaders.last().filter(|leader| leader.epoch == self.epoch)
    }
}

/// The XID that the first leader gave to a global of the set-up.
pub(crate) fn xid_of(global: usize) -> Xid {
    Xid((Epoch(1).0 << 40) | (global as u64 + 1))
}

impl Leader {
    fn lets_roll_back(&self) -> bool {
        let locks = self.coordinator.locks(&LockFilter::default(), None, PageBounds::NONE).items;
        let is_active = |xid| self.coordinator.status(xid) == GlobalStatus::Active;
        let waited_for = locks.iter().filter(|lock| !lock.queue.is_empty());
        waited_for.flat_map(|lock| &lock.holders).all(|holder| is_active(holder.xid))
    }

    /// Whether a request or a global can expire; that the finished are forgotten is left out.
    fn is_due(&self) -> bool {
        self.coordinator.next_deadline().is_some_and(|due| due <= Timestamp(TIMEOUT_MS))
    }
}

impl PartialEq for System {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

impl Hash for System {
    /// By its debug form, which shows every field of the real coordinators that decides anything.
    fn hash<H: Hasher>(&self, state: &mut H) {
        write!(Hashing(state), "{self:?}").expect("a hasher takes all");
    }
}

struct Hashing<'a, H>(&'a mut H);

impl<H: Hasher> Write for Hashing<'_, H> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

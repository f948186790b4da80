//! A coordinator driven step by step, with a memory of its own of what was asked and answered.
//!
//! After each step the checks in `check` compare what the coordinator shows with what the records
//! and the requests alone say.

mod check;

use std::collections::BTreeMap;
use std::sync::Arc;

use handfast_core::{
    Asker, BranchId, Change, ClientId, Command, Coordinator, Correlation, DecidedBy, Decision,
    Effect, FencingToken, Holding, Labels, LentXid, Limits, LoanTerms, LockMode, LockWait, Mode,
    NewBranch, OperatorAction, Outcome, PhaseOneOutcome, PhaseTwoCall, PhaseTwoOutcome, Record,
    RecordKey, Reply, ReplyWhen, Request, RowLock, StatusKind, Timestamp, VoteRequest,
    VotingRounds, Xid, XidLoan,
};

use crate::support::Store;

pub(crate) const RESOURCES: [&str; 2] = ["orders", "stock"];
pub(crate) const KEYS: usize = 4;
const TABLE: &str = "item";

/// A step of a generated test. Numbers are taken modulo the number of choices.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Begin {
        timeout_ms: u64,
        /// The client; 0 for none.
        client: u64,
        /// The XID among all that were ever lent, to whatever client.
        lent: Option<usize>,
        wants: u32,
    },
    Register {
        global: usize,
        branch: u64,
        resource: usize,
        rows: Vec<(usize, LockMode)>,
        wait: LockWait,
    },
    Report {
        global: usize,
        branch: u64,
        outcome: Option<PhaseOneOutcome>,
        data: &'static str,
    },
    Check {
        global: Option<usize>,
        resource: usize,
        rows: Vec<(usize, LockMode)>,
        wait: LockWait,
    },
    End {
        global: usize,
        decision: Decision,
        rounds: VotingRounds,
        by: DecidedBy,
        reply_when: ReplyWhen,
    },
    /// Answers one of the calls that are owed.
    Answer {
        call: usize,
        outcome: PhaseTwoOutcome,
    },
    /// Answers a call that perhaps was not made.
    Invent {
        global: usize,
        branch: u64,
        decision: Decision,
        outcome: PhaseTwoOutcome,
    },
    /// Answers what a participant perhaps was asked.
    Vote {
        global: usize,
        branch: u64,
        question: VoteRequest,
        outcome: PhaseTwoOutcome,
    },
    Forget {
        waiting: usize,
    },
    Operate {
        global: usize,
        action: OperatorAction,
    },
    Pass {
        ms: u64,
    },
    /// The leader dies and the next one takes over.
    Restart,
}

/// A request that has no answer yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending {
    pub(crate) xid: Option<Xid>,
    pub(crate) resource: usize,
    pub(crate) rows: Vec<RowLock>,
    /// Set if it may wait for locks.
    pub(crate) holding: Option<Holding>,
    /// Whether it may wait for votes, or for the end of a global.
    pub(crate) is_end: bool,
}

pub(crate) struct World {
    pub(crate) limits: Limits,
    pub(crate) coordinator: Coordinator,
    pub(crate) store: Store,
    pub(crate) now: Timestamp,
    pub(crate) epoch: u64,
    pub(crate) begun: Vec<Xid>,
    /// Every XID that was lent, with its client.
    lent: Vec<(ClientId, Xid)>,
    /// The last XID that was drawn for a begin or a loan.
    drawn: Xid,
    pub(crate) pending: BTreeMap<Correlation, Pending>,
    pub(crate) statuses: BTreeMap<Xid, StatusKind>,
    /// The greatest token that each row was granted with.
    pub(crate) tokens: BTreeMap<(String, RowLock), FencingToken>,
    correlations: u64,
}

impl World {
    pub(crate) fn new(limits: Limits) -> Self {
        let store = Store::default();
        let coordinator = store.load(1, &limits).expect("no records do not contradict");
        Self {
            limits,
            coordinator,
            store,
            now: Timestamp(0),
            epoch: 1,
            begun: Vec::new(),
            lent: Vec::new(),
            drawn: Xid(0),
            pending: BTreeMap::new(),
            statuses: BTreeMap::new(),
            tokens: BTreeMap::new(),
            correlations: 0,
        }
    }

    /// Does one step, checks everything, and gives back what left the coordinator.
    pub(crate) fn step(&mut self, step: &Step) -> Outcome {
        let out = match step {
            Step::Restart => self.restart(),
            Step::Pass { ms } => {
                self.now = self.now.after_ms(*ms);
                self.ask(Command::Tick, None)
            }
            Step::Begin { .. }
            | Step::Register { .. }
            | Step::Report { .. }
            | Step::Check { .. }
            | Step::End { .. }
            | Step::Answer { .. }
            | Step::Invent { .. }
            | Step::Vote { .. }
            | Step::Forget { .. }
            | Step::Operate { .. } => match self.request(step) {
                Some((command, pending)) => self.ask_of(client_of(step), command, pending),
                None => Outcome::default(),
            },
        };
        self.check();
        out
    }

    /// Lets all time pass and all branches answer: everything must come to its end.
    pub(crate) fn finish(&mut self) {
        for _ in 0..10_000 {
            self.now = self.now.max(self.coordinator.next_deadline().unwrap_or_default());
            self.ask(Command::Tick, None);
            self.check();
            for xid in self.begun.clone() {
                let (action, operator) = (OperatorAction::Resume, "alice".into());
                self.ask(Command::Operate { xid, action, operator }, None);
                let (action, operator) = (OperatorAction::Retry, "alice".into());
                let retried = self.ask(Command::Operate { xid, action, operator }, None);
                retried.effects.iter().for_each(|effect| self.carry_out(effect));
                // Each by itself: of many that finish at once, the first may be forgotten already.
                self.check();
                self.settle(xid);
            }
            let counts = self.coordinator.counts();
            if counts == handfast_core::Counts::default() {
                assert!(self.pending.is_empty(), "never answered: {:?}", self.pending);
                return;
            }
        }
        panic!("never ends: {:?}", self.coordinator.counts());
    }

    /// Every branch says whether it has committed. The answer counts for the one that was asked.
    fn settle(&mut self, xid: Xid) {
        for id in 1..5 {
            let (branch, question) = (BranchId(id), VoteRequest::Settle);
            let refused = PhaseTwoOutcome::Refused { error: "barred".into(), rows: Arc::default() };
            let outcome = if xid.0.is_multiple_of(2) { PhaseTwoOutcome::Done } else { refused };
            self.ask(Command::Vote { xid, branch, question, outcome }, None);
            self.check();
        }
    }

    fn carry_out(&mut self, effect: &Effect) {
        if let Effect::PhaseTwo(PhaseTwoCall { xid, branch, decision, .. }) = *effect {
            let outcome = PhaseTwoOutcome::Done;
            self.ask(Command::FinishPhaseTwo { xid, branch, decision, outcome }, None);
        }
    }

    fn restart(&mut self) -> Outcome {
        self.epoch += 1;
        self.coordinator = self.store.load(self.epoch, &self.limits).expect("RECORDED");
        // A client that waited asks again or gives up; globals without a branch are gone.
        self.pending.clear();
        self.statuses.retain(|&xid, _| self.coordinator.global(xid).is_some());
        let mut out = Outcome::default();
        self.coordinator.owed(&mut out);
        out
    }

    pub(crate) fn ask(&mut self, command: Command, pending: Option<Pending>) -> Outcome {
        self.ask_of(ClientId::default(), command, pending)
    }

    fn ask_of(&mut self, client: ClientId, command: Command, pending: Option<Pending>) -> Outcome {
        let lent =
            if let Command::Begin { loan, .. } = &command { loan.xid.as_ref() } else { None };
        let lent = lent.map(|lent| lent.xid);
        let reply_to = self.remember(&command, pending);
        if let Command::Forget { waiting } = command {
            self.pending.remove(&waiting);
        }
        let owed_before = self.owed();
        let mut out = Outcome::default();
        let asker = Asker { client, application: "".into() };
        self.coordinator.decide_for(asker, self.now, Request { reply_to, command }, &mut out);
        out.check_early_replies().expect("DURABLE-FIRST");
        for call in self.owed().iter().filter(|call| !owed_before.contains(call)) {
            let is_call = |effect: &Effect| *effect == Effect::PhaseTwo(call.clone());
            let waits_for_back_off = owed_before.iter().any(|known| {
                (known.xid, known.branch, known.resolution, &known.application_data)
                    == (call.xid, call.branch, call.resolution, &call.application_data)
            });
            assert!(waits_for_back_off || out.effects.iter().any(is_call), "not called: {call:?}");
        }
        out.changes.iter().for_each(|change| self.see_grant(change));
        self.store.apply(&out.changes);
        for effect in &out.effects {
            if let Effect::Reply { to, reply, .. } = effect {
                assert!(self.pending.remove(to).is_some(), "answered twice or unasked: {reply:?}");
                if let Reply::Begun { xid, loan, .. } = reply {
                    self.see_begun(client, lent, *xid, *loan);
                }
            }
        }
        let waits = |pending: &Pending| pending.holding.is_some() || pending.is_end;
        assert!(self.pending.values().all(waits), "not answered: {:?}", self.pending);
        out
    }

    /// LENT: an XID is drawn once, for a begin or a loan, and begins a global for its client alone.
    fn see_begun(&mut self, client: ClientId, lent: Option<Xid>, xid: Xid, loan: Option<XidLoan>) {
        match lent {
            Some(lent) => {
                assert_eq!(lent, xid);
                // A later leader relies on clients to send their own, and what has ended is told to
                // all.
                let is_own = self.lent.contains(&(client, xid)) || xid.0 >> 40 < self.epoch;
                assert!(is_own || self.begun.contains(&xid), "lent to another client");
            }
            None => {
                assert!(self.drawn < xid, "XIDs do not grow");
                self.drawn = xid;
            }
        }
        if !self.begun.contains(&xid) {
            self.begun.push(xid);
        }
        if let Some(XidLoan { first, count, .. }) = loan {
            assert!(self.drawn < first, "XIDs do not grow");
            let all = (first.0..first.0 + u64::from(count)).map(|xid| (client, Xid(xid)));
            self.lent.extend(all);
            self.drawn = Xid(first.0 + u64::from(count) - 1);
        }
    }

    fn remember(&mut self, command: &Command, pending: Option<Pending>) -> Option<Correlation> {
        let silent = matches!(
            command,
            Command::Tick
                | Command::Forget { .. }
                | Command::FinishPhaseTwo { .. }
                | Command::Vote { .. }
        );
        if silent {
            return None;
        }
        self.correlations += 1;
        // A commit may wait for votes.
        let is_end = matches!(
            command,
            Command::End { decision: Decision::Commit, .. }
                | Command::End { reply_when: ReplyWhen::Finished, .. }
        );
        let nothing = Pending { xid: None, resource: 0, rows: Vec::new(), holding: None, is_end };
        self.pending.insert(Correlation(self.correlations), pending.unwrap_or(nothing));
        Some(Correlation(self.correlations))
    }

    /// Tokens grow: a row that a branch gets has never been granted with a greater one.
    fn see_grant(&mut self, change: &Change) {
        let Change::Put(Record::Branch(branch)) = change else { return };
        let key = RecordKey::Branch(branch.xid, branch.id);
        let before = match self.store.records.get(&key) {
            Some(Record::Branch(before)) => before.rows.clone(),
            Some(Record::Global(_) | Record::Saga(_) | Record::Lease(_) | Record::Closure(_))
            | None => Vec::new(),
        };
        for row in branch.rows.iter().filter(|row| !before.contains(row)) {
            let row = RowLock { mode: LockMode::Exclusive, ..row.clone() };
            let last = self.tokens.insert((branch.resource.to_string(), row), branch.token);
            assert!(last < Some(branch.token), "the token of a row does not grow");
        }
    }

    fn request(&self, step: &Step) -> Option<(Command, Option<Pending>)> {
        let command = match step.clone() {
            Step::Begin { timeout_ms, lent, wants, .. } => {
                let lent = lent.and_then(|lent| lent.checked_rem(self.lent.len()));
                let xid = lent.map(|number| self.lent[number].1);
                let xid = xid.map(|xid| LentXid { xid, address: "tc".into() });
                let (application, name) = ("shop".into(), "place-order".into());
                Command::Begin {
                    application,
                    name,
                    timeout_ms: Some(timeout_ms),
                    labels: Labels::NONE,
                    key: None,
                    loan: LoanTerms { xid, wants },
                }
            }
            Step::Register { global, branch, resource, rows, wait } => {
                let xid = self.pick(global)?;
                let rows: Vec<_> = rows.into_iter().map(|(key, mode)| row(key, mode)).collect();
                let pending = waiting(Some(xid), resource, &rows, wait);
                return Some((register(xid, branch, resource, rows, wait), Some(pending)));
            }
            Step::Check { global, resource, rows, wait } => {
                let xid = global.and_then(|global| self.pick(global));
                let rows: Vec<_> = rows.into_iter().map(|(key, mode)| row(key, mode)).collect();
                let pending = waiting(xid, resource, &rows, wait);
                let resource = RESOURCES[resource].into();
                return Some((Command::CheckLocks { xid, resource, rows, wait }, Some(pending)));
            }
            Step::Report { global, branch, outcome, data } => {
                let (xid, branch) = (self.pick(global)?, BranchId(branch));
                let application_data = data.as_bytes().into();
                Command::ReportBranch { xid, branch, outcome, application_data }
            }
            Step::End { global, decision, rounds, by, reply_when } => {
                let (xid, reason) = (self.pick(global)?, "".into());
                Command::End { xid, decision, rounds, by, reason, reply_when }
            }
            Step::Answer { call, outcome } => {
                let PhaseTwoCall { xid, branch, decision, .. } = self.pick_call(call)?;
                Command::FinishPhaseTwo { xid, branch, decision, outcome }
            }
            Step::Invent { global, branch, decision, outcome } => {
                let (xid, branch) = (self.pick(global)?, BranchId(branch));
                Command::FinishPhaseTwo { xid, branch, decision, outcome }
            }
            Step::Vote { global, branch, question, outcome } => {
                let (xid, branch) = (self.pick(global)?, BranchId(branch));
                Command::Vote { xid, branch, question, outcome }
            }
            Step::Forget { waiting } => {
                let number = waiting.checked_rem(self.pending.len())?;
                Command::Forget { waiting: *self.pending.keys().nth(number)? }
            }
            Step::Operate { global, action } => {
                Command::Operate { xid: self.pick(global)?, action, operator: "alice".into() }
            }
            Step::Pass { .. } | Step::Restart => return None,
        };
        Some((command, None))
    }

    fn pick(&self, global: usize) -> Option<Xid> {
        global.checked_rem(self.begun.len()).map(|number| self.begun[number])
    }

    fn pick_call(&self, call: usize) -> Option<PhaseTwoCall> {
        let calls: Vec<_> = self.owed();
        call.checked_rem(calls.len()).map(|number| calls[number].clone())
    }

    pub(crate) fn owed(&self) -> Vec<PhaseTwoCall> {
        let mut out = Outcome::default();
        self.coordinator.owed(&mut out);
        let call = |effect| match effect {
            Effect::PhaseTwo(call) => Some(call),
            Effect::Reply { .. } | Effect::Vote(_) | Effect::Hold { .. } | Effect::Alert(_) => None,
        };
        out.effects.into_iter().filter_map(call).collect()
    }
}

fn client_of(step: &Step) -> ClientId {
    if let Step::Begin { client, .. } = step { ClientId(*client) } else { ClientId::default() }
}

pub(crate) fn row(key: usize, mode: LockMode) -> RowLock {
    RowLock { table: TABLE.into(), key: format!("1:{key}").into_bytes().into(), mode }
}

fn waiting(xid: Option<Xid>, resource: usize, rows: &[RowLock], wait: LockWait) -> Pending {
    let holding = (wait.timeout_ms > 0).then_some(wait.holding);
    Pending { xid, resource, rows: rows.to_vec(), holding, is_end: false }
}

fn register(xid: Xid, id: u64, resource: usize, rows: Vec<RowLock>, wait: LockWait) -> Command {
    let branch = NewBranch {
        id: BranchId(id),
        resource: RESOURCES[resource].into(),
        // Every other branch has to be asked to prepare.
        mode: if id.is_multiple_of(2) { Mode::TwoPhase } else { Mode::At },
        rows,
        application_data: Box::default(),
        // Some are known by it, and some are not.
        registered_by: id.is_multiple_of(3).then(|| format!("process {}", id % 5).into()),
    };
    // Some are the last ones of their globals, if nothing is in the way.
    if id.is_multiple_of(3) {
        Command::RegisterLastBranch { xid, branch, wait, may_be_lost: true }
    } else {
        Command::RegisterBranch { xid, branch, wait }
    }
}

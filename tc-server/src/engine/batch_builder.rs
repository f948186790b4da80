//! Builds a batch between two waits of the engine: decides, gathers, seals.
//!
//! It has no task, no socket, no disk and no clock: the engine's loop drives this value, in
//! production as in the simulator. Which effects may leave before their batch is durable is data of
//! the core ([`After`]); nothing here looks into a request or a reply.

use std::collections::VecDeque;
use std::fmt;
use std::mem;

use hashbrown::{HashMap, HashSet};

use handfast_core::{
    After, Asker, Change, Coordinator, Decided, Effect, Outcome, RecordKey, Request, Timestamp,
};

use super::inbox::{View, ViewReply};

/// How long changes that nothing waits for may wait to be written together with others, in
/// milliseconds. Too long: a crash repeats more of phase two; too short: syncs that delay others.
const LINGER_MS: u64 = 5;

/// The size of a batch to which nothing more is added, in bytes. One decision may exceed it, up to
/// the limit of a request. Too large: above the message limits of shared stores; too small: more
/// syncs than needed.
const BATCH_BYTES_ENOUGH: usize = 1 << 20;

/// Something that leaves the engine, at once or when its batch is durable.
pub enum Outgoing {
    /// An effect of a decision.
    Effect(Effect),
    /// The result of a view, ready to be handed over.
    Answer(Box<dyn FnOnce() + Send>),
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Effect(effect) => effect.fmt(f),
            Self::Answer(_) => f.write_str("Answer"),
        }
    }
}

/// Decisions to be made durable together.
#[derive(Debug, Default)]
pub struct Batch {
    /// Changes to be stored; at most one a key.
    pub changes: Vec<Change>,
    /// Leaves afterwards, in order (DURABLE-FIRST).
    pub outgoing: Vec<Outgoing>,
    /// How many requests were decided.
    pub requests: usize,
    /// Whether a reply that waits for commits alone ([`After::Commits`]) waits for this batch.
    holds_replies: bool,
}

/// The coordinator and what it has decided since the last batch was sealed.
#[derive(Debug)]
pub struct BatchBuilder {
    coordinator: Coordinator,
    /// Whether no other process can lead as long as this one lives.
    is_sole_leader: bool,
    outcome: Outcome,
    /// Batches that are large enough, oldest first.
    full: VecDeque<Batch>,
    gathered: Batch,
    gathered_bytes: usize,
    /// Whether something waits for what is gathered.
    is_awaited: bool,
    /// Since when something is gathered.
    gathered_since: Option<Timestamp>,
    /// Leaves without the batch.
    early: Vec<Outgoing>,
    /// Whether the batch that was sealed last holds replies, and is not durable yet.
    sealed_holds_replies: bool,
}

impl BatchBuilder {
    /// Takes over a coordinator; what its phase two owes comes first.
    #[must_use]
    pub fn new(coordinator: Coordinator, is_sole_leader: bool) -> Self {
        let mut builder = Self {
            coordinator,
            is_sole_leader,
            outcome: Outcome::default(),
            full: VecDeque::new(),
            gathered: Batch::default(),
            gathered_bytes: 0,
            is_awaited: false,
            gathered_since: None,
            early: Vec::new(),
            sealed_holds_replies: false,
        };
        // EFFECTS-REPEAT: which calls an earlier leader has sent is not known, so all are sent.
        builder.coordinator.owed(&mut builder.outcome);
        builder.gather();
        builder.is_awaited = !builder.gathered.outgoing.is_empty();
        builder
    }

    /// The coordinator, which may be ahead of the store.
    #[must_use]
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// Decides one request, and returns whether it has been answered.
    pub fn decide(&mut self, now: Timestamp, request: Request) -> Decided {
        self.decide_for(Asker::default(), now, request)
    }

    /// Decides as [`BatchBuilder::decide`] does a request whose sender is known.
    pub fn decide_for(&mut self, asker: Asker, now: Timestamp, request: Request) -> Decided {
        let decided = self.coordinator.decide_for(asker, now, request, &mut self.outcome);
        debug_assert_eq!(self.outcome.check_early_replies(), Ok(()), "DURABLE-FIRST");
        self.gathered.requests += 1;
        self.gather();
        // A batch ends between decisions alone: the changes of one decision are durable together or
        // not at all.
        self.end_if_full();
        if self.has_gathered() {
            self.gathered_since.get_or_insert(now);
        }
        decided
    }

    /// Looks something up; the answer leaves with the batch.
    pub(crate) fn view(&mut self, view: View) {
        let answer: ViewReply = view(&self.coordinator);
        self.is_awaited = true;
        self.gathered.outgoing.push(Outgoing::Answer(answer));
    }

    /// Stores every global that is begun and not stored yet, since the coordinator is about to
    /// stop.
    pub fn store_begun(&mut self) {
        self.coordinator.store_begun(&mut self.outcome);
        // They are gathered one by one, so that a million begun globals become batches that shared
        // stores take.
        for change in mem::take(&mut self.outcome.changes) {
            self.outcome.changes.push(change);
            self.gather();
            self.end_if_full();
        }
    }

    /// Returns how many requests are decided that no sealed batch holds.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.gathered.requests + self.full.iter().map(|batch| batch.requests).sum::<usize>()
    }

    /// Takes what leaves without waiting for a batch: [`After::Nothing`], and [`After::Commits`]
    /// where nothing is in the way.
    #[must_use]
    pub fn take_early(&mut self) -> Vec<Outgoing> {
        mem::take(&mut self.early)
    }

    /// Holds early replies back until the batch is durable, since they cannot leave early after
    /// all.
    pub(super) fn keep_for_the_batch(&mut self, early: Vec<Outgoing>) {
        // The changes that they report, if any, are stored with this batch or with a full one
        // before it.
        self.is_awaited |= !early.is_empty();
        self.gathered.outgoing.extend(early);
    }

    /// Returns when the batch should be sealed, if there is anything in it: at once if something
    /// waits for it, otherwise after a while. Changes that nothing waits for, such as that a branch
    /// is finished, may be lost in a crash: the calls are then repeated (EFFECTS-REPEAT).
    #[must_use]
    pub fn seal_due(&self) -> Option<Timestamp> {
        if !self.full.is_empty() || self.is_awaited {
            return Some(Timestamp(0));
        }
        self.gathered_since.map(|since| since.after_ms(LINGER_MS))
    }

    fn has_gathered(&self) -> bool {
        !self.gathered.changes.is_empty() || !self.gathered.outgoing.is_empty()
    }

    /// Ends the batch, if there is anything in it.
    pub fn seal(&mut self) -> Option<Batch> {
        // The full ones are older, and effects leave in the order of decisions.
        let mut batch = self.full.pop_front().or_else(|| self.take_gathered())?;
        batch.changes = coalesced(batch.changes);
        self.sealed_holds_replies = batch.holds_replies;
        Some(batch)
    }

    /// Takes note that the batch that was sealed last is durable.
    pub fn written(&mut self) {
        self.sealed_holds_replies = false;
    }

    /// Whether a reply may leave that waits for commits alone: every commit that a crash would undo
    /// is durable, and no other process can have decided otherwise.
    fn answers_ahead(&self) -> bool {
        let full = self.full.iter().any(|batch| batch.holds_replies);
        self.is_sole_leader && !(self.sealed_holds_replies || full || self.gathered.holds_replies)
    }

    fn take_gathered(&mut self) -> Option<Batch> {
        if !self.has_gathered() {
            // Requests without changes and effects would otherwise use up the room for a batch.
            self.gathered.requests = 0;
            return None;
        }
        (self.is_awaited, self.gathered_since) = (false, None);
        self.gathered_bytes = 0;
        Some(mem::take(&mut self.gathered))
    }

    fn end_if_full(&mut self) {
        if self.gathered_bytes >= BATCH_BYTES_ENOUGH {
            let full = self.take_gathered();
            self.full.extend(full);
        }
    }

    fn gather(&mut self) {
        let changes = &self.outcome.changes;
        self.gathered_bytes += changes.iter().map(Change::approximate_bytes).sum::<usize>();
        self.gathered.changes.append(&mut self.outcome.changes);
        self.gathered.holds_replies |= mem::take(&mut self.outcome.has_committed);
        let answers_ahead = self.answers_ahead();
        for effect in self.outcome.effects.drain(..) {
            let (is_early, is_awaited) = match effect.when() {
                After::Nothing => (true, false),
                After::Commits => (answers_ahead, !answers_ahead),
                After::Batch => (false, true),
                After::AnyBatch => (false, false),
            };
            self.is_awaited |= is_awaited;
            let outgoing = if is_early { &mut self.early } else { &mut self.gathered.outgoing };
            outgoing.push(Outgoing::Effect(effect));
        }
    }
}

/// Returns the last change of each key: a reader of the whole batch sees no other.
fn coalesced(changes: Vec<Change>) -> Vec<Change> {
    let keys: HashSet<RecordKey> = changes.iter().map(Change::key).collect();
    // Most batches change each record once, and records are large: they are not moved then.
    if keys.len() == changes.len() {
        return changes;
    }
    let mut places: HashMap<RecordKey, usize> = HashMap::with_capacity(keys.len());
    let mut kept: Vec<Change> = Vec::with_capacity(changes.len());
    for change in changes {
        let place = *places.entry(change.key()).or_insert(kept.len());
        match kept.get_mut(place) {
            Some(earlier) => *earlier = change,
            None => kept.push(change),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use handfast_core::{
        BranchId, Command, Correlation, DecidedBy, Decision, Epoch, Holding, Labels, Limits,
        LoanTerms, LockWait, Mode, NewBranch, PhaseOneOutcome, Reply, ReplyWhen, VotingRounds, Xid,
    };

    use super::*;

    const NOW: Timestamp = Timestamp(1_000);

    /// A builder, and the number of its last request.
    struct Asked(BatchBuilder, u64);

    impl Asked {
        fn new() -> Self {
            let coordinator =
                Coordinator::load(Epoch(1), "tc:8091".into(), Limits::default(), Vec::new());
            Self(BatchBuilder::new(coordinator.unwrap(), true), 0)
        }

        fn ask(&mut self, command: Command) {
            self.1 += 1;
            let request = Request { reply_to: Some(Correlation(self.1)), command };
            self.0.decide(NOW, request);
        }

        fn begin(&mut self) -> Xid {
            let (application, name) = ("shop".into(), "order".into());
            let (labels, key) = (Labels::default(), None);
            let loan = LoanTerms::default();
            self.ask(Command::Begin { application, name, timeout_ms: None, labels, key, loan });
            let begun = self.0.take_early().pop();
            let Some(Outgoing::Effect(Effect::Reply { reply: Reply::Begun { xid, .. }, .. })) =
                begun
            else {
                unreachable!("{begun:?}")
            };
            xid
        }

        fn register_last(&mut self, xid: Xid) {
            self.register(xid, false);
        }

        fn register(&mut self, xid: Xid, may_be_lost: bool) {
            let branch = NewBranch {
                id: BranchId(7),
                resource: "stock".into(),
                mode: Mode::At,
                rows: Vec::new(),
                application_data: Box::default(),
                registered_by: None,
            };
            let wait = LockWait { timeout_ms: 0, holding: Holding::Nothing };
            self.ask(Command::RegisterLastBranch { xid, branch, wait, may_be_lost });
        }

        fn report(&mut self, xid: Xid, outcome: PhaseOneOutcome) {
            let (branch, application_data) = (BranchId(7), Box::default());
            let outcome = Some(outcome);
            self.ask(Command::ReportBranch { xid, branch, outcome, application_data });
        }
    }

    /// Its caller has been answered, and its rows are released. It is stored with what comes next,
    /// and leaves behind that.
    #[test]
    fn the_report_that_decides_a_global_waits_for_others() {
        let mut asked = Asked::new();
        let xid = asked.begin();
        asked.register_last(xid);
        assert_eq!(asked.0.seal_due(), Some(Timestamp(0)), "the branch waits for its registration");
        assert_eq!(asked.0.seal().unwrap().outgoing.len(), 1);

        asked.report(xid, PhaseOneOutcome::Done);
        assert_eq!(asked.0.seal_due(), Some(NOW.after_ms(LINGER_MS)));
        let next = asked.begin();
        assert_eq!(asked.0.seal_due(), Some(NOW.after_ms(LINGER_MS)), "a begin leaves early");
        asked.register_last(next);
        assert_eq!(asked.0.seal_due(), Some(Timestamp(0)));
        let batch = asked.0.seal().unwrap();
        assert_eq!(batch.outgoing.len(), 3, "call, reply to the report, and to the registration");
        assert_eq!(asked.0.seal_due(), None);
    }

    /// The rows are locked in the database of the only branch of a global.
    #[test]
    fn a_branch_that_may_be_lost_is_answered_at_once() {
        let mut asked = Asked::new();
        let xid = asked.begin();
        asked.register(xid, true);
        assert_eq!(asked.0.take_early().len(), 1);
        assert_eq!(asked.0.seal_due(), Some(NOW.after_ms(LINGER_MS)));
        asked.report(xid, PhaseOneOutcome::Done);
        let next = asked.begin();
        asked.register(next, true);
        assert_eq!(asked.0.take_early().len(), 1, "a last branch has decided the first global");
        assert_eq!(asked.0.seal_due(), Some(NOW.after_ms(LINGER_MS)));
    }

    /// The branch may have locked rows that a crash takes back from the commit.
    #[test]
    fn a_branch_that_may_be_lost_waits_for_commits_before_it() {
        let mut asked = Asked::new();
        let (committed, waits, next) = (asked.begin(), asked.begin(), asked.begin());
        asked.ask(Command::End {
            xid: committed,
            decision: Decision::Commit,
            rounds: VotingRounds::PrepareOnly,
            by: DecidedBy::Client,
            reason: "".into(),
            reply_when: ReplyWhen::Decided,
        });
        asked.register(waits, true);
        assert_eq!(asked.0.take_early().len(), 0, "the commit is not written");
        assert_eq!(asked.0.seal().unwrap().outgoing.len(), 2);
        asked.register(next, true);
        assert_eq!(asked.0.take_early().len(), 0, "it is being written");
        asked.0.written();
        let after = asked.begin();
        asked.register(after, true);
        assert_eq!(asked.0.take_early().len(), 1);
    }

    /// Another process may lead by now, which has granted the row to another global.
    #[test]
    fn no_branch_is_answered_at_once_where_others_can_lead() {
        let mut asked = Asked::new();
        asked.0.is_sole_leader = false;
        let xid = asked.begin();
        asked.register(xid, true);
        assert_eq!(asked.0.take_early().len(), 0);
        assert_eq!(asked.0.seal_due(), Some(Timestamp(0)));
    }

    #[test]
    fn a_report_that_decides_nothing_is_waited_for() {
        for outcome in [PhaseOneOutcome::Failed, PhaseOneOutcome::Unknown] {
            let mut asked = Asked::new();
            let xid = asked.begin();
            asked.register_last(xid);
            asked.0.seal();
            asked.report(xid, outcome);
            assert_eq!(asked.0.seal_due(), Some(Timestamp(0)), "{outcome:?}");
        }
    }

    /// A new leader sends what an earlier one may have sent, at once.
    #[test]
    fn what_is_owed_at_a_start_leaves_at_once() {
        let mut asked = Asked::new();
        let xid = asked.begin();
        asked.register_last(xid);
        asked.report(xid, PhaseOneOutcome::Done);
        let changes = asked.0.seal().unwrap().changes;
        let records = changes.into_iter().filter_map(|change| match change {
            Change::Put(record) => Some(record),
            Change::Delete(_) => None,
        });
        let (address, limits) = ("tc:8091".into(), Limits::default());
        let loaded = Coordinator::load(Epoch(2), address, limits, records.collect::<Vec<_>>());
        let started = BatchBuilder::new(loaded.unwrap(), true);
        assert_eq!(started.seal_due(), Some(Timestamp(0)));
        assert_eq!(BatchBuilder::new(asked.0.coordinator, true).seal_due(), Some(Timestamp(0)));
    }
}

//! What the engine does between two waits: decide, gather, seal.
//!
//! No task, no socket, no disk and no clock: the engine's loop drives this value in production and
//! a simulator can drive it step by step.

use std::fmt;
use std::mem;

use hashbrown::{HashMap, HashSet};

use handfast_core::{
    Asker, Change, Coordinator, Effect, Outcome, RecordKey, Reply, Request, Timestamp, What,
};

use super::inbox::{Answer, View};

/// How long changes that nobody waits for may wait to be written together with others, in
/// milliseconds. Too long: a crash repeats more of phase two; too short: syncs that delay others.
const LINGER_MS: u64 = 5;

/// Something that may leave once the batch it belongs to is durable.
pub enum Emission {
    /// An effect of a decision.
    Effect(Effect),
    /// The result of a view, ready to be handed over.
    Answer(Box<dyn FnOnce() + Send>),
}

impl fmt::Debug for Emission {
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
    /// What must be stored; at most one change a key.
    pub changes: Vec<Change>,
    /// What may leave afterwards, in order (DURABLE-FIRST).
    pub emissions: Vec<Emission>,
    /// How many requests were decided.
    pub requests: usize,
}

/// The coordinator and what it has decided since the last batch was sealed.
#[derive(Debug)]
pub struct Step {
    coordinator: Coordinator,
    outcome: Outcome,
    gathered: Batch,
    /// Since when there are changes that nobody waits for.
    lingering_since: Option<Timestamp>,
    /// What may leave without the batch.
    at_once: Vec<Emission>,
}

impl Step {
    /// Takes over a coordinator; what its phase two owes comes first.
    #[must_use]
    pub fn new(coordinator: Coordinator) -> Self {
        let mut step = Self {
            coordinator,
            outcome: Outcome::default(),
            gathered: Batch::default(),
            lingering_since: None,
            at_once: Vec::new(),
        };
        step.coordinator.owed(&mut step.outcome);
        step.gather();
        step
    }

    /// The coordinator, which may be ahead of the store.
    #[must_use]
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// Decides one request; tells whether it has been answered, or waits.
    pub fn decide(&mut self, now: Timestamp, request: Request) -> Decided {
        self.decide_for(Asker::default(), now, request)
    }

    /// As [`Step::decide`], of a request whose sender is known.
    pub fn decide_for(&mut self, by: Asker, now: Timestamp, request: Request) -> Decided {
        let asker = request.reply_to;
        let begins = matches!(request.what, What::Begin { .. });
        self.coordinator.decide_for(by, now, request, &mut self.outcome);
        let answered = self.outcome.effects.iter().any(|effect| match effect {
            Effect::Reply { to, .. } => Some(*to) == asker,
            Effect::PhaseTwo(_)
            | Effect::Vote(_)
            | Effect::Hold { .. }
            | Effect::NeedsOperator(_) => false,
        });
        self.gathered.requests += 1;
        if begins && self.outcome.changes.is_empty() {
            self.at_once.extend(self.outcome.effects.drain(..).map(Emission::Effect));
        }
        let freed = self.outcome.effects.extract_if(.., |effect| tells_of_a_release(effect));
        self.at_once.extend(freed.map(Emission::Effect));
        self.gather();
        self.lingering_since = match self.lingering_since {
            _ if self.gathered.changes.is_empty() => None,
            None => Some(now),
            since => since,
        };
        if answered || asker.is_none() { Decided::Answered } else { Decided::Waits }
    }

    /// Looks something up; the answer leaves with the batch.
    pub(crate) fn view(&mut self, view: View) {
        let answer: Answer = view(&self.coordinator);
        self.gathered.emissions.push(Emission::Answer(answer));
    }

    /// How many requests the next batch holds.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.gathered.requests
    }

    /// What leaves without waiting for a batch. A begin is stored nowhere and tells nothing of what
    /// is (`docs/decisions/0002-begin-is-not-stored.md`): its reply has nothing to wait for. A
    /// release tells whoever asked for it what he knows, that he does not hold the lock
    /// (`docs/decisions/0011-a-release-is-answered-at-once.md`).
    #[must_use]
    pub fn take_at_once(&mut self) -> Vec<Emission> {
        mem::take(&mut self.at_once)
    }

    /// When the batch should be sealed, if there is anything in it: at once if somebody waits for
    /// it, otherwise after a while. What nobody waits for, such as that a branch is finished, may
    /// be lost by a crash, since it is then found out again (EFFECTS-REPEAT).
    #[must_use]
    pub fn seal_due(&self) -> Option<Timestamp> {
        if !self.gathered.emissions.is_empty() {
            return Some(Timestamp(0));
        }
        self.lingering_since.map(|since| since.after_ms(LINGER_MS))
    }

    /// Ends the batch, if there is anything in it.
    pub fn seal(&mut self) -> Option<Batch> {
        if self.gathered.changes.is_empty() && self.gathered.emissions.is_empty() {
            self.gathered.requests = 0;
            return None;
        }
        self.lingering_since = None;
        let mut batch = mem::take(&mut self.gathered);
        batch.changes = coalesced(batch.changes);
        Some(batch)
    }

    fn gather(&mut self) {
        self.gathered.changes.append(&mut self.outcome.changes);
        self.gathered.emissions.extend(self.outcome.effects.drain(..).map(Emission::Effect));
    }
}

fn tells_of_a_release(effect: &Effect) -> bool {
    matches!(effect, Effect::Reply { reply: Reply::LockFreed, .. })
}

/// Whether a decided request has its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// The reply, if one was asked for, is among the gathered effects.
    Answered,
    /// The reply comes with a later decision.
    Waits,
}

/// The last change of each key, which is all that a reader of the whole batch can see.
fn coalesced(changes: Vec<Change>) -> Vec<Change> {
    let keys: HashSet<RecordKey> = changes.iter().map(Change::key).collect();
    // Records are large, and most batches change each of theirs once.
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

//! Phase-two calls that clients have and have not answered.
//!
//! One table for all connections: a client may answer on another one than it was asked on, and
//! after somebody else was asked the same. BOUNDED: the dispatcher asks a branch again after its
//! time limit only, and old calls go when the table grows.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use handfast_core::{BranchId, Decision, Xid};
use handfast_seata_wire::message::BranchEnded;
use hashbrown::HashMap;

use crate::dispatch::ResourceKey;

/// How long an answer counts at least. The dispatcher asks again much earlier, under another id;
/// without this, an action that takes longer than that would never be done.
const KEPT: Duration = Duration::from_secs(300);

/// A table that is smaller is not worth sweeping.
const SWEEP_AT_MIN: usize = 1_024;

/// What a client was asked.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) xid: Xid,
    pub(super) branch: BranchId,
    pub(super) decision: Decision,
    pub(super) resource: ResourceKey,
    /// The process that registered the branch, where that is known.
    pub(super) registered_by: Option<Arc<str>>,
    /// Who was asked.
    pub(super) client_id: Arc<str>,
    /// As the client was told them, and must repeat.
    pub(super) xid_text: String,
    pub(super) branch_id: i64,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Calls {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    id_last: i32,
    by_id: HashMap<i32, (Instant, Asked)>,
    /// At this size it is looked for calls that nobody will answer.
    sweep_at: usize,
}

impl Calls {
    /// Notes a call and gives back its id.
    pub(super) fn ask(&self, asked: Asked) -> i32 {
        let now = Instant::now();
        let mut state = self.state.lock().expect("no holder of the calls' lock panics");
        state.sweep(now);
        let id = state.next_id();
        state.by_id.insert(id, (now, asked));
        id
    }

    /// The id of a request that has no answer.
    pub(super) fn next_id(&self) -> i32 {
        self.state.lock().expect("no holder of the calls' lock panics").next_id()
    }

    /// The call that this answers, which is not waited for any more. An answer that names another
    /// branch is none.
    pub(super) fn take(&self, id: i32, answer: &BranchEnded) -> Option<Asked> {
        let mut state = self.state.lock().expect("no holder of the calls' lock panics");
        let (_, asked) = state.by_id.get(&id)?;
        if (&asked.xid_text, asked.branch_id) != (&answer.xid, answer.branch_id) {
            return None;
        }
        state.by_id.remove(&id).map(|(_, asked)| asked)
    }
}

impl State {
    fn next_id(&mut self) -> i32 {
        self.id_last = self.id_last.wrapping_add(1) & i32::MAX;
        self.id_last
    }

    /// Forgets old calls whenever the table has doubled: such as those of branches that another
    /// process has ended.
    fn sweep(&mut self, now: Instant) {
        if self.by_id.len() < self.sweep_at.max(SWEEP_AT_MIN) {
            return;
        }
        self.by_id.retain(|_, (since, _)| now - *since < KEPT);
        self.sweep_at = self.by_id.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_core::Mode;
    use handfast_seata_wire::value::BranchStatus;

    fn asked(branch: u64) -> Asked {
        Asked {
            xid: Xid(7),
            branch: BranchId(branch),
            decision: Decision::Commit,
            resource: ResourceKey { id: "r".into(), mode: Mode::Xa },
            registered_by: None,
            client_id: "a".into(),
            xid_text: "tc:7".to_owned(),
            branch_id: branch.cast_signed(),
        }
    }

    fn answer(branch_id: i64) -> BranchEnded {
        let (xid, status) = ("tc:7".to_owned(), BranchStatus::PhaseTwoCommitted);
        BranchEnded { result: Ok(()), xid, branch_id, status }
    }

    #[test]
    fn an_answer_counts_once_and_for_its_own_branch() {
        let calls = Calls::default();
        let id = calls.ask(asked(3));
        assert!(calls.take(id, &answer(4)).is_none());
        assert!(calls.take(id + 1, &answer(3)).is_none());
        assert!(calls.take(id, &answer(3)).is_some());
        assert!(calls.take(id, &answer(3)).is_none());
    }

    #[test]
    fn after_the_last_id_comes_the_first() {
        let calls = Calls::default();
        calls.state.lock().unwrap().id_last = i32::MAX;
        assert_eq!((calls.ask(asked(3)), calls.ask(asked(4))), (0, 1));
    }

    #[test]
    fn an_answer_counts_after_another_process_was_asked() {
        let calls = Calls::default();
        let (first, second) = (calls.ask(asked(3)), calls.ask(asked(3)));
        assert!(calls.take(first, &answer(3)).is_some());
        assert!(calls.take(second, &answer(3)).is_some());
        assert!(calls.state.lock().unwrap().by_id.is_empty());
    }

    #[test]
    fn calls_that_nobody_answers_go() {
        let calls = Calls::default();
        let now = Instant::now();
        for branch in 0..SWEEP_AT_MIN as u64 {
            calls.ask(asked(branch));
        }
        let mut state = calls.state.lock().unwrap();
        state.sweep(now);
        assert_eq!(state.by_id.len(), SWEEP_AT_MIN, "an answer may come");
        state.sweep_at = 0;
        state.sweep(now + KEPT + KEPT);
        assert!(state.by_id.is_empty());
    }
}

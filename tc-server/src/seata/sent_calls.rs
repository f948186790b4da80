//! Phase-two calls that were sent to clients and are not answered.
//!
//! There is one table for all connections: a client may answer on another connection than the one
//! it was called on, and after another client was called for the same branch. BOUNDED: the
//! dispatcher calls a branch again only after its time limit, and old calls are removed when the
//! table grows.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use handfast_core::{BranchId, Decision, Xid};
use handfast_seata_wire::message::BranchEnded;
use hashbrown::HashMap;

use crate::dispatch::ResourceKey;

/// How long, at least, an answer to a call is accepted. The dispatcher calls again much earlier,
/// under another id. Without this time, an action that takes longer than the dispatcher waits would
/// never count as done.
const KEPT: Duration = Duration::from_secs(300);

/// The size below which the table is not swept.
const SWEEP_AT_MIN: usize = 1_024;

/// A call that was sent to a client.
#[derive(Clone, Debug)]
pub(super) struct SentCall {
    pub(super) xid: Xid,
    pub(super) branch: BranchId,
    pub(super) decision: Decision,
    pub(super) resource: ResourceKey,
    /// The process that registered the branch, if known.
    pub(super) registered_by: Option<Arc<str>>,
    /// The client that was called.
    pub(super) client_id: Arc<str>,
    /// The ids in the call, which the answer must repeat.
    pub(super) xid_text: String,
    pub(super) branch_id: i64,
}

/// The table of calls by id.
#[derive(Debug, Default)]
pub(super) struct SentCalls {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    id_last: i32,
    by_id: HashMap<i32, (Instant, SentCall)>,
    /// The size at which old calls are swept.
    sweep_at: usize,
}

impl SentCalls {
    /// Adds a call and returns its id.
    pub(super) fn ask(&self, asked: SentCall) -> i32 {
        let now = Instant::now();
        let mut state = self.state.lock().expect("no holder of the calls' lock panics");
        state.sweep(now);
        let id = state.next_id();
        state.by_id.insert(id, (now, asked));
        id
    }

    /// Returns an id for a request that has no answer.
    pub(super) fn next_id(&self) -> i32 {
        self.state.lock().expect("no holder of the calls' lock panics").next_id()
    }

    /// Removes and returns the call that this answers. An answer that names another branch is
    /// ignored.
    pub(super) fn take(&self, id: i32, answer: &BranchEnded) -> Option<SentCall> {
        let mut state = self.state.lock().expect("no holder of the calls' lock panics");
        let (_, asked) = state.by_id.get(&id)?;
        // Ids begin again with each process: a late answer to the one before may bear this id.
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

    /// Removes old calls whenever the table has doubled, such as those of branches that another
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

    fn asked(branch: u64) -> SentCall {
        SentCall {
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
        let calls = SentCalls::default();
        let id = calls.ask(asked(3));
        assert!(calls.take(id, &answer(4)).is_none());
        assert!(calls.take(id + 1, &answer(3)).is_none());
        assert!(calls.take(id, &answer(3)).is_some());
        assert!(calls.take(id, &answer(3)).is_none());
    }

    #[test]
    fn ids_wrap_around_to_zero() {
        let calls = SentCalls::default();
        calls.state.lock().unwrap().id_last = i32::MAX;
        assert_eq!((calls.ask(asked(3)), calls.ask(asked(4))), (0, 1));
    }

    #[test]
    fn an_answer_counts_after_another_process_was_called() {
        let calls = SentCalls::default();
        let (first, second) = (calls.ask(asked(3)), calls.ask(asked(3)));
        assert!(calls.take(first, &answer(3)).is_some());
        assert!(calls.take(second, &answer(3)).is_some());
        assert!(calls.state.lock().unwrap().by_id.is_empty());
    }

    #[test]
    fn unanswered_calls_are_swept() {
        let calls = SentCalls::default();
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

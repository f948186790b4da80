//! The local commit of a last branch, which decides its global, as the process knows it.

use std::sync::atomic::{AtomicU8, Ordering};

/// Shared by a global and the branches that its process makes.
#[derive(Debug, Default)]
pub(crate) struct LastCommit(AtomicU8);

/// The knowledge of the local commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing was registered as the last branch, or it has not committed.
    Undecided,
    /// It is sent, or had no answer. Unless the coordinator hears so in time, it asks the database,
    /// and the global may be committed.
    InDoubt,
    /// The global is committed.
    Committed,
}

impl LastCommit {
    pub(crate) fn known(&self) -> Known {
        let known = self.0.load(Ordering::Acquire);
        let is = |other: &Known| *other as u8 == known;
        [Known::Undecided, Known::Committed].into_iter().find(is).unwrap_or(Known::InDoubt)
    }

    /// Takes note of what is known now. What is committed stays so.
    pub(crate) fn set(&self, known: Known) {
        self.0.fetch_max(known as u8, Ordering::AcqRel);
    }

    /// Takes note that a local commit which was in doubt has not happened.
    pub(crate) fn note_failure(&self) {
        let (doubt, undecided) = (Known::InDoubt as u8, Known::Undecided as u8);
        // Another one may have committed: that stays so.
        let _ = self.0.compare_exchange(doubt, undecided, Ordering::AcqRel, Ordering::Acquire);
    }
}

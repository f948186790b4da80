//! A record which says that no coordinator may continue from these records.
//!
//! It is a record so that every store keeps it without knowing what it means, and so that a program
//! of a version without it refuses the records too.

use std::fmt;
use std::sync::Arc;

use super::id::Timestamp;

/// Why no coordinator may continue from these records, as stored. There is at most one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosureRecord {
    /// The reason.
    pub reason: ClosureReason,
    /// Where they have gone, or where they were to come from, for operators.
    pub place: Arc<str>,
    /// When they were closed.
    pub at: Timestamp,
}

/// The reason for which records are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosureReason {
    /// Another store has them, and a coordinator may have continued from there.
    Moved,
    /// They are being copied from elsewhere, and may not all be there.
    Incomplete,
}

impl fmt::Display for ClosureRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        match self.reason {
            ClosureReason::Moved => write!(f, "the records were moved to {place}: start there"),
            ClosureReason::Incomplete => {
                write!(f, "copying the records from {place} has not ended: do it again")
            }
        }
    }
}

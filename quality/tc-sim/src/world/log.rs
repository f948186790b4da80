//! The log of a run: one line an event, the same for the same seed.

use super::{MS, Owner};

/// Where the lines go.
#[derive(Debug)]
pub(crate) enum Log {
    /// Nowhere: they are not even made.
    Off,
    /// Into memory.
    Kept(Vec<String>),
}

impl Log {
    pub(super) fn line(&mut self, now: u64, who: Owner, what: impl FnOnce() -> String) {
        if let Self::Kept(lines) = self {
            lines.push(format!("{:>8}.{:03} {who}: {}", now / MS, now % MS, what()));
        }
    }

    pub(super) fn take(&mut self) -> Vec<String> {
        match self {
            Self::Off => Vec::new(),
            Self::Kept(lines) => std::mem::take(lines),
        }
    }
}

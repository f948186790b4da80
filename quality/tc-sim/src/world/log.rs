//! The log of a run: one line for each thing that happens, the same for the same seed.

use super::{MS, Owner};

/// Whether the lines are kept.
#[derive(Debug)]
pub(crate) enum LogMode {
    /// They are not even built.
    Off,
    /// They are kept in memory.
    Kept(Vec<String>),
}

impl LogMode {
    pub(super) fn line(&mut self, now: u64, owner: Owner, text: impl FnOnce() -> String) {
        if let Self::Kept(lines) = self {
            lines.push(format!("{:>8}.{:03} {owner}: {}", now / MS, now % MS, text()));
        }
    }

    pub(super) fn take(&mut self) -> Vec<String> {
        match self {
            Self::Off => Vec::new(),
            Self::Kept(lines) => std::mem::take(lines),
        }
    }
}

//! The findings of invariants.

use std::fmt;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The name of the invariant.
    pub invariant: &'static str,
    /// When it was seen broken, in microseconds of virtual time.
    pub at: u64,
    /// A description of the violation.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// Collects the checks of invariants, and those that failed.
#[derive(Debug, Default)]
pub(crate) struct Verdict {
    checks: u64,
    broken: Vec<String>,
}

impl Verdict {
    /// Counts a check, and records a violation unless the condition holds.
    pub(crate) fn require(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        self.checks += 1;
        if !holds {
            self.broken.push(otherwise());
        }
    }

    /// Returns the number of checks so far.
    pub(super) fn checks(&self) -> u64 {
        self.checks
    }

    /// Takes what was found broken since the last call.
    pub(super) fn take_broken(&mut self) -> Vec<String> {
        std::mem::take(&mut self.broken)
    }
}

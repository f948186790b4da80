//! Judges a run: a ledger of what is certain, and the invariants that must hold.

pub(crate) mod invariant;
pub(crate) mod ledger;
pub(crate) mod oracle;

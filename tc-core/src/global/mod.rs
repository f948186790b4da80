//! Globals and their branches: from the first registration to the end of phase two.
//!
//! ```text
//! register ─▶ report ─▶ end (vote, if participants have to be asked) ─▶ phase_two ─▶ history
//! ```

pub(crate) mod begin;
pub(crate) mod begin_keys;
pub(crate) mod branch;
pub(crate) mod branch_rows;
pub(crate) mod branches;
pub(crate) mod course;
pub(crate) mod departed;
pub(crate) mod end;
pub(crate) mod finished;
pub(crate) mod globals;
pub(crate) mod history;
pub(crate) mod label_index;
pub(crate) mod loans;
pub(crate) mod operate;
pub(crate) mod phase_two;
pub(crate) mod register;
pub(crate) mod report;
pub(crate) mod state;
pub(crate) mod table;
pub(crate) mod trace;
pub(crate) mod vote;
pub(crate) mod voting;

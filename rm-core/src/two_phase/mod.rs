//! Two-phase commit on databases: the names of branches, and what each answer means.
//!
//! Pure functions: a database's answer and its trace of a branch in, a verdict out. Which statement
//! asks a database, and how its errors become a [`DatabaseReply`], is not known here.

mod branch_context;
mod branch_name;
mod outcome;
mod verdict;

pub use branch_context::{BranchContext, read};
pub use branch_name::{BranchName, InvalidNode, NameTooLong, Node};
pub use outcome::{EndedAgainstDecision, Finished, outcome};
pub use verdict::{
    DatabaseReply, PrepareOutcome, SweepAction, Trace, TwoPhaseVerdict, of_phase_two, of_prepare,
    of_sweep,
};

//! Phase one: local transactions, from BEGIN to COMMIT.
//!
//! `transaction` is what applications hold; `statement` runs what needs a plan and records it in
//! the `branch_log`; `commit` ends a branch with its undo row and its registration. `attempts`
//! repeats a local transaction whose rows another global holds. `ahead` takes the lock of a counter
//! before one begins; branches that did so wait in a `joint_queue` for a `joint_transaction`, which
//! may carry their statements out as one `sum`. `named_row` takes that of the row of a last branch,
//! and carries it out in one call, or on SQLite in such a queue. A single statement that gives its
//! row by whole numbers has its undo row `composed` by the database. Phase two is not known here.
//!
//! A single statement goes the first of these ways that is open to it:
//!
//! 1. In a local transaction with others' (`joint_queue`), if the row of its counter, or on SQLite
//!    that of its last branch, is granted already.
//! 2. In one call with its undo row and COMMIT (`named_row`), if the row of its last branch is
//!    granted already.
//! 3. With an undo row that the database composes (`composed`), if whole numbers give its row.
//! 4. With images (`statement`), as in any local transaction.

mod ahead;
mod answer_stock;
mod attempts;
mod branch;
mod branch_log;
mod commit;
mod composed;
mod compound;
mod emit;
mod joint_queue;
mod joint_transaction;
mod local_transaction;
mod named_row;
mod registration;
mod row_locks;
mod statement;
mod sum;
mod transaction;

pub(crate) use answer_stock::AnswerStock;
pub(crate) use attempts::{Attempt, Attempts};
pub(crate) use branch::Part;
pub(crate) use joint_queue::JointQueues;
pub use transaction::AtTransaction;

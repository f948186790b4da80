//! AT mode: ordinary SQL in a global transaction.
//!
//! Each write is planned before it runs, its rows are read before and after (the images), and the
//! images go into `undo_log` in the same local transaction. `plan` decides how, from text alone.

pub mod plan;

//! The undo of a branch, kept until its global is decided: images of its rows, as an undo log, in
//! the table `undo_log`.

pub(crate) mod composed;
pub(crate) mod image;
pub(crate) mod log;
pub(crate) mod table;

//! Sagas: steps that the coordinator has carried out one after the other, and taken back in the
//! reverse order when one of them cannot be done.
//!
//! A saga is data: its definition is checked once (`definition`), stored, and worked off. A step
//! can be a saga of its own (`child`), which is a part of the same record. What
//! comes next follows from its record alone (`course`); what participants answer, and the passing
//! of time, change the record (`decide`); people and their applications ask about it and act on it
//! (`ask`), and are shown it as a global (`view`). A step is stored as running before its call
//! leaves (DURABLE-FIRST), so that a step of unknown outcome is taken back too.
//!
//! It does not know how a call reaches a participant, nor how long to pause between attempts.

pub(crate) mod ask;
mod call;
mod check;
mod child;
mod course;
mod decide;
mod load;
pub(crate) mod sagas;
pub(crate) mod table;
mod view;

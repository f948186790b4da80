//! Sagas: the coordinator has their steps carried out one after the other, and compensated in the
//! reverse order if one of them cannot be done.
//!
//! A saga is data: its definition is checked once (`check`), stored, and worked off. A step can be
//! a saga of its own (`child`), which is a part of the same record. The next steps follow from the
//! record alone (`course`). The record is changed by the answers of participants and the passing of
//! time (`answers`), and by the requests of applications and operators (`requests`). Operators see
//! a saga as a global (`view`). A step is stored as running before its call leaves (DURABLE-FIRST),
//! so that a step of unknown outcome is compensated too.
//!
//! It does not know how a call reaches a participant, nor how long to pause between attempts. It
//! can touch no global and no lock (`sagas`).

mod answers;
mod call;
mod check;
mod child;
mod course;
mod load;
pub(crate) mod requests;
pub(crate) mod sagas;
pub(crate) mod table;
mod view;

//! Triggers, and whether they write anything but the row that they fire for.

mod body;
mod expression;
mod writes;

pub use self::{
    body::{Returns, TriggerBody},
    writes::TriggerWrites,
};

//! The language of the planner's text cases, and plans as text.

mod describe;
mod fixture;

pub(crate) use fixture::Case;

//! Views for operators. Everything here takes the coordinator by shared reference, so that a view
//! cannot change what it shows.

pub(crate) mod alerts;
pub(crate) mod list;
pub(crate) mod page;
pub(crate) mod preview;
pub(crate) mod saga;
pub(crate) mod view;
pub(crate) mod waits;

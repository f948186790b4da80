//! What the simulated services do, drawn from the seed.

pub(crate) mod events;
pub(crate) mod points;
pub(crate) mod saga;
pub(crate) mod transfers;

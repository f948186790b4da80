//! Models of what surrounds the processes: databases, broker, store and network.
//!
//! A model knows virtual time and the [`Observer`](observation::Observer) it reports to. It knows
//! no coordinator, no client and no judge.

pub(crate) mod broker;
pub(crate) mod database;
pub(crate) mod network;
pub(crate) mod observation;
pub(crate) mod store;
pub(crate) mod values;

//! Models of what surrounds the processes: databases, broker, disk and network. No model knows a
//! client or a coordinator.

pub(crate) mod broker;
pub(crate) mod database;
pub(crate) mod disk;
pub(crate) mod network;

//! The Handfast transaction coordinator: engine, stores, dispatch and front ends.

pub mod clock;
pub mod dispatch;
pub mod embedded;
pub mod engine;
pub mod grpc;
pub mod store;

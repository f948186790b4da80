//! The Handfast transaction coordinator as a library: engine, stores, dispatch and front ends.

pub mod accept;
pub mod admin;
pub mod audit;
pub mod backup;
pub mod cli;
pub mod clock;
pub mod config;
mod crash_point;
pub mod descriptors;
pub mod dispatch;
pub mod embedded;
pub mod engine;
pub mod grpc;
pub mod maintenance;
pub mod metrics;
mod off_the_loop;
pub mod over_http;
pub mod peers;
mod presence;
pub mod seata;
pub mod security;
pub mod serve;
pub mod store;
pub mod telemetry;
pub mod time_format;
pub mod turned_away;
pub mod webhook;

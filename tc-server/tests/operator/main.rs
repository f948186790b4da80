//! The operator's side of the coordinator: configuration, access, audit log, admin API and command
//! line, on real servers with real gRPC traffic.

mod access;
mod application;
mod audit;
mod command_line;
mod config;
mod contract;
mod dirty_write;
mod documents;
mod port;
mod process;
mod render;
mod rest;
mod tls;

//! The operator's side of the coordinator: configuration, access, audit log, admin API and command
//! line, on real servers with real gRPC traffic.

#[cfg(test)]
mod access;
#[cfg(test)]
mod application;
#[cfg(test)]
mod audit;
#[cfg(test)]
mod boards;
#[cfg(test)]
mod bulk;
#[cfg(test)]
mod command_line;
#[cfg(test)]
mod config;
#[cfg(test)]
mod console;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod csrf;
#[cfg(test)]
mod descriptors;
#[cfg(test)]
mod dirty_write;
#[cfg(test)]
mod documents;
#[cfg(test)]
mod events;
#[cfg(test)]
mod exported;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod hanging;
#[cfg(test)]
mod labels;
#[cfg(test)]
mod mcp;
#[cfg(test)]
mod metrics;
#[cfg(test)]
mod named_locks;
#[cfg(test)]
mod operator_log;
#[cfg(test)]
mod port;
#[cfg(test)]
mod reference;
#[cfg(test)]
mod render;
#[cfg(test)]
mod rest;
#[cfg(test)]
mod saga;
#[cfg(test)]
mod sagas;
#[cfg(test)]
mod serving;
#[cfg(test)]
mod stopping;
#[cfg(test)]
mod stuck;
#[cfg(test)]
mod tls;
#[cfg(test)]
mod tokens;
#[cfg(test)]
mod turned_away;
#[cfg(test)]
mod views;
#[cfg(test)]
mod waits;
#[cfg(test)]
mod webhook;

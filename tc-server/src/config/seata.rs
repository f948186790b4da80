//! The port for clients of Apache Seata.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::millis;
use crate::seata::{Settings, UndoLogs};

/// The port for clients of Apache Seata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeataConfig {
    /// Whether this port is served.
    pub enabled: bool,
    /// The address to listen on. Port 0 takes a free port. The protocol has neither encryption nor
    /// tokens: every program that reaches the port can begin and end transactions.
    pub listen: SocketAddr,
    /// Connections at a time; a further one is closed at once. Too few: clients cannot connect. Too
    /// many: the number of file descriptors limits them instead.
    pub connections_max: usize,
    /// How long a client may take from one frame to the next, in milliseconds; then it is
    /// disconnected. Under 15000: idle clients are disconnected between their heartbeats. Too long:
    /// dead clients occupy connections.
    pub silence_timeout_ms: u64,
    /// The longest frame, and the longest body after decompression. Too small: branches with many
    /// rows cannot register. Too large: a few faulty clients fill the memory.
    pub frame_bytes_max: usize,
    /// Requests of one connection that may be in progress. The next one then waits neither for a
    /// lock nor for phase two, and nothing else is read before it is answered. Too few: a busy
    /// client gets conflicts, and answers that phase two takes longer. Too many: a faulty client
    /// fills the memory.
    pub requests_max: usize,
    /// Frames queued for one connection. Too small: a client that is slow for a moment is
    /// disconnected. Too large: a client that has stopped reading fills the memory.
    pub queue_frames_max: usize,
    /// How long a request that meets a lock waits in the queue before it is answered with a
    /// conflict, in milliseconds. Too short: clients poll. Too long: they hold rows of their
    /// databases meanwhile.
    pub lock_wait_ms: u64,
    /// How long the answer to a decision waits for phase two, in milliseconds. Too short: a client
    /// that continues after a commit may find branches of TCC and XA uncommitted. From 30000 on:
    /// clients do not wait for the answer.
    pub phase_two_wait_ms: u64,
    /// How long, at least, phase two of an XA branch that no database knows is retried, past its
    /// global's deadline and past the coordinator's start, and how long the process that registered
    /// it must have been away, in milliseconds. Too short: a branch that is prepared late, or held
    /// by a process that has lost the coordinator, stays prepared. Too long: a global with a branch
    /// that was never prepared ends only after this time.
    pub xa_unknown_wait_ms: u64,
    /// The age, in days, from which clients are asked to delete leftover undo logs. Too few: undo
    /// logs that an operator would examine are gone. Too many: the tables grow.
    pub undo_log_save_days: u16,
    /// The time from the coordinator's start to the first such request, in milliseconds. Too short:
    /// no client is connected yet. Too long: no request is made between two restarts.
    pub undo_log_delay_ms: u64,
    /// The time between such requests, in milliseconds; 0: never. Too short: the databases are busy
    /// with deletions. Too long: the tables grow.
    pub undo_log_period_ms: u64,
}

impl Default for SeataConfig {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            enabled: false,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8091)),
            connections_max: 8_192,
            silence_timeout_ms: millis(settings.silence_limit),
            frame_bytes_max: settings.limits.frame_bytes_max,
            requests_max: settings.requests_max,
            queue_frames_max: settings.queue_frames_max,
            lock_wait_ms: millis(settings.lock_wait),
            phase_two_wait_ms: millis(settings.phase_two_wait),
            xa_unknown_wait_ms: millis(settings.xa_unknown_wait),
            undo_log_save_days: settings.undo_logs.save_days,
            undo_log_delay_ms: millis(settings.undo_logs.delay),
            undo_log_period_ms: millis(settings.undo_logs.period),
        }
    }
}

impl From<&SeataConfig> for Settings {
    fn from(config: &SeataConfig) -> Self {
        let limits = handfast_seata_wire::Limits {
            frame_bytes_max: config.frame_bytes_max,
            body_bytes_max: config.frame_bytes_max,
            ..handfast_seata_wire::Limits::default()
        };
        Self {
            limits,
            silence_limit: Duration::from_millis(config.silence_timeout_ms),
            requests_max: config.requests_max,
            queue_frames_max: config.queue_frames_max,
            lock_wait: Duration::from_millis(config.lock_wait_ms),
            phase_two_wait: Duration::from_millis(config.phase_two_wait_ms),
            xa_unknown_wait: Duration::from_millis(config.xa_unknown_wait_ms),
            undo_logs: UndoLogs {
                save_days: config.undo_log_save_days,
                delay: Duration::from_millis(config.undo_log_delay_ms),
                period: Duration::from_millis(config.undo_log_period_ms),
            },
            ..Self::default()
        }
    }
}

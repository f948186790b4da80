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
    /// Whether there is such a port.
    pub enabled: bool,
    /// Where it listens. Port 0 takes a free one. The protocol knows neither encryption nor tokens:
    /// every program that reaches the port can begin and end transactions.
    pub listen: SocketAddr,
    /// Connections at a time; a further one is closed at once. Too few: clients cannot connect. Too
    /// many: as many as there are file descriptors for are let in.
    pub connections_max: usize,
    /// How long a client may take from one frame to the next, in milliseconds; then it is let go.
    /// Under 15000: clients that have nothing to say are let go between their heartbeats. Too long:
    /// dead ones keep their places.
    pub silence_timeout_ms: u64,
    /// The longest frame, and the longest body after decompression. Too small: branches with many
    /// rows cannot register. Too large: a few bad clients fill the memory.
    pub frame_bytes_max: usize,
    /// Requests of one connection that may be under way; the next one then waits neither for a lock
    /// nor for phase two, and nothing else is read before it is answered. Too few: a busy client is
    /// told of conflicts, and that phase two takes longer. Too many: a bad one fills the memory.
    pub requests_max: usize,
    /// Frames queued for one connection. Too small: a client that is slow for a moment is cut off.
    /// Too large: one that stopped reading fills the memory.
    pub queue_frames_max: usize,
    /// How long a request that meets a lock waits in the queue before it is told of a conflict, in
    /// milliseconds. Too short: clients poll. Too long: they hold rows of their databases
    /// meanwhile.
    pub lock_wait_ms: u64,
    /// How long the answer to a decision waits for phase two, in milliseconds. Too short: a
    /// client that goes on after a commit may find branches of TCC and XA uncommitted. At 30000 and
    /// more: clients do not wait for the answer.
    pub phase_two_wait_ms: u64,
    /// How long, at least, an XA branch that no database knows is asked for again, past its
    /// global's deadline and past the coordinator's start, and how long a process that registered
    /// it must have been away, in milliseconds. Too short: a branch that is prepared late, or held
    /// by a process that has lost the coordinator, stays prepared. Too long: the end of a global
    /// with a branch that never was takes as long.
    pub xa_unknown_wait_ms: u64,
    /// How old undo logs are, in days, when clients are asked to delete those that are left.
    /// Too few: what a person would look at is gone. Too many: the tables grow.
    pub undo_log_save_days: u16,
    /// How long after its start the coordinator asks for that for the first time, in milliseconds.
    /// Too short: no client is there yet. Too long: it never comes to it between two restarts.
    pub undo_log_delay_ms: u64,
    /// How long from one time to the next, in milliseconds; 0: never. Too short: the databases are
    /// busy with it. Too long: the tables grow.
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

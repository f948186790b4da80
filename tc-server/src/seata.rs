//! The front end for clients of Apache Seata: its messages to requests, replies to its answers.
//!
//! A Seata client is a TM and RM like any other, in the same core. What the protocol's bytes mean
//! is the business of `handfast-seata-wire`; nothing here decides anything about a global. The
//! protocol knows neither encryption nor tokens, so that everyone who reaches the port is let in.

mod answer;
mod calls;
mod client;
mod closing;
mod connection;
mod end;
mod outbox;
mod pending;
mod phase_two;
mod request;
mod resource;
mod rows;
mod status;
mod uncalled;
mod undo_logs;
mod unknown;

use std::sync::Arc;
use std::time::Duration;

use handfast_core::{Limits, Timestamp};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::accept::Acceptor;
use crate::dispatch::Dispatcher;
use crate::engine::EngineHandle;
use crate::presence::Presence;
use calls::Calls;
pub(crate) use uncalled::Uncalled;
use undo_logs::Clients;
use unknown::Unknown;

/// What the server says its version is. Clients show it; from 2.6.0 on they would give resources up
/// in a way that is not served.
pub(crate) const SERVER_VERSION: &str = "2.5.0";

/// How clients are served.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What a client may send.
    pub limits: handfast_seata_wire::Limits,
    /// How long a client may take from one frame to the next.
    pub silence_limit: Duration,
    /// Requests of one connection that may be under way; the next one then waits for nothing.
    pub requests_max: usize,
    /// Frames queued for one connection; then it is cut off.
    pub queue_frames_max: usize,
    /// Resources that one connection may register.
    pub resources_max: usize,
    /// Rows that one lock key may name.
    pub rows_max: usize,
    /// How long a request that meets a lock waits in the queue before it is told of a conflict.
    pub lock_wait: Duration,
    /// How long the answer to a decision waits for phase two.
    pub phase_two_wait: Duration,
    /// How long, at least, an XA branch that no database knows is asked for again.
    pub xa_unknown_wait: Duration,
    /// When old undo logs are deleted.
    pub undo_logs: UndoLogs,
}

/// When undo logs that no client has deleted are.
#[derive(Clone, Debug)]
pub struct UndoLogs {
    /// How old they are then, in days.
    pub save_days: u16,
    /// How long after the start for the first time.
    pub delay: Duration,
    /// How long from one time to the next; never if it is zero.
    pub period: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: handfast_seata_wire::Limits::default(),
            silence_limit: Duration::from_secs(30),
            requests_max: 1_024,
            queue_frames_max: 16_384,
            resources_max: 1_024,
            rows_max: Limits::default().rows_per_request_max,
            lock_wait: Duration::from_millis(100),
            phase_two_wait: Duration::from_secs(10),
            xa_unknown_wait: Duration::from_secs(60),
            undo_logs: UndoLogs {
                save_days: 7,
                delay: Duration::from_secs(180),
                period: Duration::from_secs(86_400),
            },
        }
    }
}

/// The front end. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Front {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    presence: Presence,
    engine: EngineHandle,
    dispatcher: Dispatcher,
    calls: Calls,
    unknown: Unknown,
    clients: Clients,
    settings: Settings,
    /// Since when clients can register.
    since: Timestamp,
}

impl Front {
    /// A front end before this engine and dispatcher, without connections.
    #[must_use]
    pub fn new(engine: EngineHandle, dispatcher: Dispatcher, settings: Settings) -> Self {
        let since = dispatcher.now();
        let (calls, unknown, clients) = Default::default();
        let presence = Presence::new(engine.clone());
        let shared =
            Shared { presence, engine, dispatcher, calls, unknown, clients, settings, since };
        Self { shared: Arc::new(shared) }
    }

    /// Serves what the acceptor lets in, until it is told to stop; then ends when every connection
    /// has written what is queued for it.
    pub async fn serve(self, mut acceptor: Acceptor, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        let deleting = self.delete_undo_logs();
        tokio::pin!(deleting);
        loop {
            tokio::select! {
                never = &mut deleting => match never {},
                (io, peer) = acceptor.accept() => {
                    connections.spawn(connection::converse(self.clone(), io, peer, stop.clone()));
                }
                // An ended connection leaves nothing behind; its task is only taken off the list.
                Some(_) = connections.join_next() => {}
                () = stop.cancelled() => break,
            }
        }
        drop(acceptor);
        while connections.join_next().await.is_some() {}
    }
}

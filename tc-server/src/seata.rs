//! The front end for clients of Apache Seata. It translates their messages to requests, and replies
//! to their answers.
//!
//! A Seata client is a TM and RM like any other, in the same core. The format of the messages is in
//! `handfast-seata-wire`. Nothing here decides anything about a global. The protocol has neither
//! encryption nor tokens, so every client that reaches the port is served. While another node
//! leads, connections are passed on to it, and end when it does not lead any more.

mod arrival;
mod client;
mod client_addresses;
mod closing;
mod connection;
mod end;
mod labels;
mod members;
mod merged;

mod no_op_branches;
mod pending_requests;
mod phase_two;
mod preface;
mod reading;
#[cfg(test)]
mod recorded_writes;
mod relay;
mod request;
mod request_handler;
mod resource;
mod rows;
mod send_queue;
mod sent_calls;
mod status;
mod terms;
mod traced;

mod undo_logs;
mod unknown;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use handfast_core::{Limits, Timestamp};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::accept::Acceptor;
use crate::dispatch::Dispatcher;
use crate::engine::{EngineHandle, Leadership, changed};
use crate::presence::Presence;
use crate::spans::Spans;
use arrival::serve_arrival;
use client_addresses::ClientAddresses;
pub use members::Members;
pub(crate) use no_op_branches::NoOpBranches;
use sent_calls::SentCalls;
use terms::{Outage, Term, Way};
use undo_logs::Clients;
use unknown::UnknownXaBranches;

/// The version that the server announces. Clients show it. At 2.6.0 or later they would unregister
/// resources in a way that is not served.
pub(crate) const SERVER_VERSION: &str = "2.5.0";

/// The limits and times for clients.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Limits of the messages that a client may send.
    pub limits: handfast_seata_wire::Limits,
    /// How long a client may take from one frame to the next.
    pub silence_limit: Duration,
    /// Requests of one connection that may be in progress. A request beyond them does not wait for
    /// locks or phase two.
    pub requests_max: usize,
    /// Frames queued for one connection. A connection that exceeds them is closed.
    pub queue_frames_max: usize,
    /// Resources that one connection may register.
    pub resources_max: usize,
    /// Rows that one lock key may name.
    pub rows_max: usize,
    /// How long a request that meets a lock waits in the queue before it is answered with a
    /// conflict.
    pub lock_wait: Duration,
    /// How long the answer to a decision waits for phase two.
    pub phase_two_wait: Duration,
    /// How long, at least, phase two of an XA branch that no database knows is retried.
    pub xa_unknown_wait: Duration,
    /// How long connections wait for a leader, from when none could be reached. Clients give up
    /// after 15 seconds or more.
    pub leader_wait: Duration,
    /// When old undo logs are deleted.
    pub undo_logs: UndoLogs,
}

/// When the coordinator has undo logs deleted that their clients left behind.
#[derive(Clone, Debug)]
pub struct UndoLogs {
    /// The age from which they are deleted, in days.
    pub save_days: u16,
    /// The time from the start to the first deletion.
    pub delay: Duration,
    /// The time between deletions; zero disables them.
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
            leader_wait: Duration::from_secs(10),
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
pub struct SeataFrontend {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    presence: Presence,
    engine: EngineHandle,
    dispatcher: Dispatcher,
    calls: SentCalls,
    unknown: UnknownXaBranches,
    clients: Clients,
    settings: Settings,
    spans: Spans,
    leadership: watch::Receiver<Leadership>,
    /// `None` where no other node can lead.
    members: Option<Members>,
    addresses: ClientAddresses,
    outage: Outage,
    /// When clients could first register in this term.
    term_began_at: AtomicU64,
}

impl SeataFrontend {
    /// Creates a front end for this engine and dispatcher, without connections. `members` is the
    /// way to the other nodes, where others can lead.
    #[must_use]
    pub fn new(
        engine: EngineHandle,
        leadership: watch::Receiver<Leadership>,
        dispatcher: Dispatcher,
        settings: Settings,
        members: Option<Members>,
    ) -> Self {
        let term_began_at = AtomicU64::new(dispatcher.clock().now().0);
        let (calls, unknown, clients, addresses) = Default::default();
        let presence = Presence::new(engine.clone());
        let outage = Outage::new(settings.leader_wait);
        // One way out for all spans of a coordinator.
        let spans = dispatcher.spans();
        let shared = Shared {
            presence,
            engine,
            dispatcher,
            calls,
            unknown,
            clients,
            settings,
            spans,
            leadership,
            members,
            addresses,
            outage,
            term_began_at,
        };
        Self { shared: Arc::new(shared) }
    }

    /// Serves the connections of the acceptor until `stop` is cancelled. Then completes when every
    /// connection has written the frames queued for it.
    ///
    /// Connections are served while the engine leads, and end with its lead: the next leader could
    /// not call a client that stayed. While another node leads, connections are passed on to it.
    pub async fn serve(self, mut acceptor: Acceptor, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        let mut leadership = self.shared.leadership.clone();
        let first = Way::of(&leadership.borrow_and_update());
        let terms = watch::Sender::new(self.begin_term(first, &stop));
        let deleting = self.delete_undo_logs();
        tokio::pin!(deleting);
        loop {
            tokio::select! {
                never = &mut deleting => match never {},
                () = changed(&mut leadership) => {
                    let now = leadership.borrow_and_update().clone();
                    // An engine that was stopped is no lost lead: its clients get their answers.
                    if now != Leadership::Ended {
                        self.follow(Way::of(&now), &terms, &stop);
                    }
                }
                (io, peer) = acceptor.accept() => {
                    let (frontend, terms) = (self.clone(), terms.subscribe());
                    connections.spawn(serve_arrival(frontend, io, peer, terms, stop.clone()));
                }
                // Removes the task of an ended connection from the set.
                Some(_) = connections.join_next() => {}
                () = stop.cancelled() => break,
            }
        }
        drop(acceptor);
        while connections.join_next().await.is_some() {}
    }

    /// Begins another term if connections go elsewhere now, and ends those of the term before.
    fn follow(&self, way: Way, terms: &watch::Sender<Term>, stop: &CancellationToken) {
        if way == terms.borrow().way {
            return;
        }
        // Cancelled first: a connection that still finds the earlier term ends at once.
        terms.borrow().ended.cancel();
        terms.send_replace(self.begin_term(way, stop));
    }

    fn begin_term(&self, way: Way, stop: &CancellationToken) -> Term {
        if matches!(way, Way::Here(_)) {
            // The time in which an XA branch may still be found counts from here: no process could
            // register with this node before.
            let now = self.shared.dispatcher.clock().now();
            self.shared.term_began_at.store(now.0, Ordering::Relaxed);
            self.shared.outage.end();
        }
        Term { way, ended: stop.child_token() }
    }

    fn term_began_at(&self) -> Timestamp {
        Timestamp(self.shared.term_began_at.load(Ordering::Relaxed))
    }
}

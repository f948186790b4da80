//! Periodic deletion of undo logs that clients left behind.
//!
//! A client of Seata answers a commit before it deletes the undo log, so a client that is killed in
//! between leaves rows that no client deletes. Like Seata Server, the coordinator periodically asks
//! one process of each database to delete undo logs older than some days. Unlike Seata Server, it
//! asks none for as long as the rollback of an old global may need its undo log: a process deletes
//! whatever is as old in the table, and what databases are called does not tell which of them are
//! one. Clients may name the same one by several URLs, and native clients name it in another way.
//!
//! The request has no answer. If a process ignores it, another process is asked the next time.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future;
use std::sync::{Arc, Mutex, MutexGuard};

use handfast_core::{Mode, Timestamp, Xid};
use handfast_seata_wire::encode;
use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::{Message, UndoLogDelete};
use handfast_seata_wire::value::BranchType;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::SeataFrontend;
use super::client::Client;
use super::send_queue::{FRAME_BYTES, SendQueue};
use crate::engine::EngineError;

const DAY_MS: u64 = 86_400_000;

/// Globals looked at in one turn of the engine.
const GLOBALS_AT_A_TIME: usize = 1_000;

/// The registered clients.
#[derive(Debug, Default)]
pub(super) struct Clients {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    id_last: u64,
    connected: BTreeMap<u64, Connected>,
}

#[derive(Debug)]
struct Connected {
    client: Arc<Mutex<Arc<Client>>>,
    send_queue: SendQueue,
}

/// A client's entry among the registered ones. Dropping it removes the client.
#[derive(Debug)]
pub(super) struct ListedClient {
    frontend: SeataFrontend,
    id: u64,
}

/// A process that can delete the undo logs of a database.
struct Deleter {
    client: Arc<Client>,
    /// The client's own name of the database.
    resource_id: Arc<str>,
    send_queue: SendQueue,
}

impl ListedClient {
    pub(super) fn add(
        frontend: &SeataFrontend,
        client: &Arc<Mutex<Arc<Client>>>,
        send_queue: &SendQueue,
    ) -> Self {
        let mut state = frontend.shared.clients.lock();
        state.id_last += 1;
        let id = state.id_last;
        let connected = Connected { client: Arc::clone(client), send_queue: send_queue.clone() };
        state.connected.insert(id, connected);
        drop(state);
        Self { frontend: frontend.clone(), id }
    }
}

impl Drop for ListedClient {
    fn drop(&mut self) {
        self.frontend.shared.clients.lock().connected.remove(&self.id);
    }
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the clients' lock panics")
    }

    /// Returns the processes of each database, by the core's name.
    fn of_databases(&self) -> BTreeMap<Arc<str>, Vec<Deleter>> {
        let mut databases: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for Connected { client, send_queue } in self.lock().connected.values() {
            let client = Arc::clone(&client.lock().expect("no holder of a client's lock panics"));
            for (own, name) in client.undo_logs() {
                let (client, resource_id) = (Arc::clone(&client), Arc::clone(own));
                let deleter = Deleter { client, resource_id, send_queue: send_queue.clone() };
                databases.entry(Arc::clone(name)).or_default().push(deleter);
            }
        }
        databases
    }
}

impl SeataFrontend {
    /// Has undo logs deleted periodically, for as long as it is polled.
    pub(super) async fn delete_undo_logs(&self) -> Infallible {
        let settings = &self.shared.settings.undo_logs;
        if settings.period.is_zero() {
            return future::pending().await;
        }
        let mut times = interval_at(Instant::now() + settings.delay, settings.period);
        times.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut round = 0_usize;
        loop {
            times.tick().await;
            // Before the look at the globals: a database that connects later may have a branch that
            // the look has not seen.
            let databases = self.shared.clients.of_databases();
            match self.needed_undo_logs().await {
                Ok(needed) => self.ask_to_delete(round, databases, &needed),
                // The leader's clients are the leader's to ask.
                Err(EngineError::NotLeading) => {}
                Err(error) => tracing::info!(%error, "old undo logs are not deleted"),
            }
            round = round.wrapping_add(1);
        }
    }

    /// Returns the resources with a global that may still be rolled back and that began before the
    /// kept days. One day less is kept here, to allow for clocks that differ.
    async fn needed_undo_logs(&self) -> Result<BTreeSet<Arc<str>>, EngineError> {
        let kept_days = u64::from(self.shared.settings.undo_logs.save_days.saturating_sub(1));
        let now = self.shared.dispatcher.clock().now();
        let begun_before = Timestamp(now.0.saturating_sub(kept_days * DAY_MS));
        // Page by page, between requests. A global that begins meanwhile is too young to count.
        let (mut needed, mut next) = (BTreeSet::new(), Some(Xid(0)));
        while let Some(from) = next {
            let page = self.shared.engine.view(move |coordinator| {
                coordinator.resources_to_undo(Mode::At, begun_before, from, GLOBALS_AT_A_TIME)
            });
            match page.await {
                Ok(page) => {
                    needed.extend(page.items);
                    next = page.next;
                }
                // The next look is a whole period away.
                Err(EngineError::Busy) => self.shared.engine.room().await,
                Err(error) => return Err(error),
            }
        }
        Ok(needed)
    }

    fn ask_to_delete(
        &self,
        round: usize,
        databases: BTreeMap<Arc<str>, Vec<Deleter>>,
        needed: &BTreeSet<Arc<str>>,
    ) {
        if !(needed.is_empty() || databases.is_empty()) {
            let reason = "old undo logs are not deleted: a global as old has not ended";
            tracing::warn!(resources = ?needed, "{reason}");
            return;
        }
        for processes in databases.values() {
            self.ask_one_to_delete(&processes[round % processes.len()]);
        }
    }

    fn ask_one_to_delete(&self, Deleter { client, resource_id, send_queue }: &Deleter) {
        let save_days = self.shared.settings.undo_logs.save_days;
        let message = Message::UndoLogDelete(UndoLogDelete {
            branch_type: BranchType::At,
            resource_id: resource_id.to_string(),
            save_days: save_days.try_into().unwrap_or(i16::MAX),
        });
        let (id, client_id) = (self.shared.calls.next_id(), &*client.id);
        let mut frame = Vec::with_capacity(FRAME_BYTES);
        let kind = MessageKind::OneWay;
        match encode(&message, kind, id, client.encoding, &client.dialect, &mut frame) {
            Ok(()) => {
                tracing::info!(client = client_id, save_days, "asked to delete old undo logs");
                send_queue.put(frame);
            }
            Err(error) => {
                let code = error.code();
                tracing::warn!(client = client_id, code, %error, "old undo logs are not deleted");
            }
        }
    }
}

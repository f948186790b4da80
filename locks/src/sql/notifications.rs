//! The notifications of PostgreSQL, for all clients of a backend over one connection.
//!
//! One client at a time keeps the connection and forwards the notifications for the others. When
//! that client ends, or the connection does, the next client continues with another connection. To
//! make good for notifications that were missed in between, all waiters are woken.

use std::collections::{HashMap, HashSet};
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{FutureExt, TryFutureExt};
use sqlx::postgres::PgListener;
use sqlx::{Executor, PgPool};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

use super::backend::explain;
use crate::backend::WakeUp;
use crate::driver::within;
use crate::error::BackendError;
use crate::name::AcquisitionId;

/// How long the connection may be silent before the server is probed, and how long the probe may
/// take: a connection that fell silent would be listened to forever.
const PROBE_EVERY: Duration = Duration::from_secs(5);
const PROBE_WITHIN: Duration = Duration::from_secs(5);
const PROBE: &str = "SELECT 'handfast locks listen'";

/// The clients that listen.
#[derive(Debug, Default)]
pub(super) struct Notifications {
    clients: Mutex<HashMap<u128, mpsc::UnboundedSender<WakeUp>>>,
    /// Notified when a client starts or stops listening.
    changed: Notify,
    /// The client that holds it listens for all.
    serving: tokio::sync::Mutex<()>,
}

impl Notifications {
    /// Forwards the notifications for a client, for as long as it is polled.
    pub(super) async fn listen(
        &self,
        pool: &PgPool,
        client: u128,
        wake_ups: &mpsc::UnboundedSender<WakeUp>,
    ) -> Result<Infallible, BackendError> {
        self.clients().insert(client, wake_ups.clone());
        let _listening = Listening { notifications: self, client };
        // The client that serves subscribes to this client's channel, too.
        self.changed.notify_one();
        let _serving = self.serving.lock().await;
        self.serve(pool).await
    }

    async fn serve(&self, pool: &PgPool) -> Result<Infallible, BackendError> {
        let mut listener = PgListener::connect_with(pool).await.map_err(explain)?;
        // The loss of the connection ends this call: one that sqlx makes first would go unused.
        listener.eager_reconnect(false);
        let mut heard = HashSet::new();
        loop {
            let follow = self.follow(&mut listener, &mut heard).map_err(explain).boxed();
            within(PROBE_WITHIN, follow).await?;
            tokio::select! {
                call = listener.try_recv() => match call.map_err(explain)? {
                    Some(call) => self.forward(call.payload()),
                    None => return Err(cut_off()),
                },
                () = self.changed.notified() => {}
                () = sleep(PROBE_EVERY) => {
                    within(PROBE_WITHIN, listener.execute(PROBE).map_err(explain)).await?;
                }
            }
        }
    }

    /// Listens to the channels of exactly the clients that are registered.
    async fn follow(
        &self,
        listener: &mut PgListener,
        heard: &mut HashSet<u128>,
    ) -> Result<(), sqlx::Error> {
        let present: HashSet<u128> = self.clients().keys().copied().collect();
        let gone: Vec<u128> = heard.difference(&present).copied().collect();
        for client in gone {
            listener.unlisten(&channel(client)).await?;
            heard.remove(&client);
        }
        let come: Vec<u128> = present.difference(heard).copied().collect();
        if come.is_empty() {
            return Ok(());
        }
        let channels: Vec<String> = come.iter().map(|client| channel(*client)).collect();
        listener.listen_all(channels.iter().map(String::as_str)).await?;
        for client in come {
            heard.insert(client);
            // A waiter may have missed a wake-up before this.
            self.wake(client, WakeUp::All);
        }
        Ok(())
    }

    fn forward(&self, payload: &str) {
        if let Some(id) = AcquisitionId::parse(payload) {
            self.wake(id.client, WakeUp::One(id));
        }
    }

    fn wake(&self, client: u128, wake: WakeUp) {
        if let Some(wake_ups) = self.clients().get(&client) {
            // The receiver ends with its client.
            let _ = wake_ups.send(wake);
        }
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<u128, mpsc::UnboundedSender<WakeUp>>> {
        // No change under the mutex panics half-way.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Registers a client as listening, for as long as this lives.
struct Listening<'c> {
    notifications: &'c Notifications,
    client: u128,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.notifications.clients().remove(&self.client);
        self.notifications.changed.notify_one();
    }
}

/// The channel of a client. `WAKE` makes the same name.
fn channel(client: u128) -> String {
    format!("handfast_{client:032x}")
}

fn cut_off() -> BackendError {
    let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    BackendError::passing("the listening connection was lost", error)
}

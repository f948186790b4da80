//! The calls of PostgreSQL, for all clients of a backend over one connection.
//!
//! The client whose turn it is keeps the connection and passes on what others are called for. When
//! he ends, or the connection does, the next one begins with another connection; signs that were
//! missed in between are made good by waking everybody.

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
use crate::backend::Wake;
use crate::error::BackendError;
use crate::name::Token;
use crate::shell::within;

/// How long nothing may be heard before the server is asked for a sign of life, and how long that
/// may take: a connection that fell silent would be listened to for ever.
const SIGN_EVERY: Duration = Duration::from_secs(5);
const SIGN_WITHIN: Duration = Duration::from_secs(5);
const SIGN: &str = "SELECT 'handfast locks listen'";

/// Those who listen.
#[derive(Debug, Default)]
pub(super) struct Calls {
    clients: Mutex<HashMap<u128, mpsc::UnboundedSender<Wake>>>,
    /// Told when somebody begins or ends.
    changed: Notify,
    /// Whose it is listens for all.
    turn: tokio::sync::Mutex<()>,
}

impl Calls {
    /// Hears the calls for a client, for as long as it is polled.
    pub(super) async fn listen(
        &self,
        pool: &PgPool,
        client: u128,
        wakes: &mpsc::UnboundedSender<Wake>,
    ) -> Result<Infallible, BackendError> {
        self.clients().insert(client, wakes.clone());
        let _listening = Listening { calls: self, client };
        self.changed.notify_one();
        let _turn = self.turn.lock().await;
        self.serve(pool).await
    }

    async fn serve(&self, pool: &PgPool) -> Result<Infallible, BackendError> {
        let mut listener = PgListener::connect_with(pool).await.map_err(explain)?;
        listener.eager_reconnect(false);
        let mut heard = HashSet::new();
        loop {
            let follow = self.follow(&mut listener, &mut heard).map_err(explain).boxed();
            within(SIGN_WITHIN, follow).await?;
            tokio::select! {
                call = listener.try_recv() => match call.map_err(explain)? {
                    Some(call) => self.pass_on(call.payload()),
                    None => return Err(cut_off()),
                },
                () = self.changed.notified() => {}
                () = sleep(SIGN_EVERY) => {
                    within(SIGN_WITHIN, listener.execute(SIGN).map_err(explain)).await?;
                }
            }
        }
    }

    /// Listens to the channels of exactly those clients that are there.
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
            // Whoever was next before may have been called already.
            self.wake(client, Wake::All);
        }
        Ok(())
    }

    fn pass_on(&self, payload: &str) {
        if let Some(token) = Token::parse(payload) {
            self.wake(token.client, Wake::One(token));
        }
    }

    fn wake(&self, client: u128, wake: Wake) {
        if let Some(wakes) = self.clients().get(&client) {
            // The receiver ends with the one who listens.
            let _ = wakes.send(wake);
        }
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<u128, mpsc::UnboundedSender<Wake>>> {
        // No step in here panics half-way.
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A client listens for as long as this lives.
struct Listening<'c> {
    calls: &'c Calls,
    client: u128,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.calls.clients().remove(&self.client);
        self.calls.changed.notify_one();
    }
}

/// Where a client is called: `WAKE` names it too.
fn channel(client: u128) -> String {
    format!("handfast_{client:032x}")
}

fn cut_off() -> BackendError {
    let error = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
    BackendError::passing("the listening connection was lost", error)
}

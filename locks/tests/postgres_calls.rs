//! PostgreSQL calls those who wait over one connection of the backend, however many clients it has.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/stage.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod stage;

use std::sync::Arc;
use std::time::Duration;

use handfast_locks::{Answer, Backend, Hold, Leave, Place, PostgresLocks, Wake};
use sqlx::{Connection, PgConnection};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use stage::{ask, fresh, hold, postgres};

/// More than the backend has connections.
const CLIENTS: usize = 40;
/// After this long a test that waits has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a connection that listens has said last.
const LISTENING: &str = "datname = current_database() AND query LIKE 'LISTEN%'";

/// A client that listens, and waits for a lock of its own.
struct Client {
    place: Hold,
    listening: JoinHandle<()>,
    woken: mpsc::UnboundedReceiver<Wake>,
}

impl Client {
    async fn begin(backend: &Arc<PostgresLocks>) -> Self {
        let place = hold(&fresh());
        let (wakes, woken) = mpsc::unbounded_channel();
        let (backend, client) = (Arc::clone(backend), place.token.client);
        let listening = tokio::spawn(async move {
            // Its end closes the channel.
            let Err(_) = backend.listen(client, &wakes).await;
        });
        let mut client = Self { place, listening, woken };
        client.hears(Wake::All).await;
        client
    }

    async fn hears(&mut self, wake: Wake) {
        let heard = async { while self.woken.recv().await.unwrap() != wake {} };
        tokio::time::timeout(PATIENCE, heard).await.expect("it is called in the end");
    }

    /// Somebody holds its lock and lets it go.
    async fn is_called(&mut self, backend: &PostgresLocks) {
        let holder = hold(self.place.name.as_str());
        let granted = backend.ask(&ask(&holder, Place::None)).await.unwrap();
        assert!(matches!(granted, Answer::Granted { .. }), "{granted:?}");
        let joined = backend.ask(&ask(&self.place, Place::Join)).await.unwrap();
        assert!(matches!(joined, Answer::Busy { .. }), "{joined:?}");
        backend.leave(&Leave { hold: holder, is_doubtful: false, is_alone: false }).await.unwrap();
        self.hears(Wake::One(self.place.token)).await;
        backend
            .leave(&Leave { hold: self.place.clone(), is_doubtful: false, is_alone: false })
            .await
            .unwrap();
    }
}

async fn clients(backend: &Arc<PostgresLocks>, count: usize) -> Vec<Client> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(Client::begin(backend).await);
    }
    clients
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_clients_are_called_over_one_connection() {
    let url = postgres().await;
    let backend = Arc::new(PostgresLocks::connect(&url).await.unwrap());
    let mut clients = clients(&backend, CLIENTS).await;
    for client in &mut clients {
        client.is_called(&backend).await;
    }
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let count = format!("SELECT COUNT(*) FROM pg_stat_activity WHERE {LISTENING}");
    let count: i64 =
        sqlx::query_scalar(sqlx::AssertSqlSafe(count)).fetch_one(&mut connection).await.unwrap();
    assert_eq!(count, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_listened_for_others_is_followed() {
    let backend = Arc::new(PostgresLocks::connect(&postgres().await).await.unwrap());
    let mut clients = clients(&backend, 3).await;
    let first = clients.remove(0);
    first.listening.abort();
    for client in &mut clients {
        // Signs may have been missed.
        client.hears(Wake::All).await;
    }
    for client in &mut clients {
        client.is_called(&backend).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_listened_is_followed() {
    let url = postgres().await;
    let backend = Arc::new(PostgresLocks::connect(&url).await.unwrap());
    let mut clients = clients(&backend, 3).await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let end = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {LISTENING}");
    let ended: Vec<bool> =
        sqlx::query_scalar(sqlx::AssertSqlSafe(end)).fetch_all(&mut connection).await.unwrap();
    assert_eq!(ended, [true]);
    let listened = clients.remove(0);
    listened.listening.await.unwrap();
    for client in &mut clients {
        client.hears(Wake::All).await;
        client.is_called(&backend).await;
    }
}

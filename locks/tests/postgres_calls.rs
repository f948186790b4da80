//! PostgreSQL notifies all waiters over one connection of the backend, however many clients it has.
//! Also: what becomes of locks if its clock is set back.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/setup.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod setup;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use handfast_locks::{
    AcquireRequest, AcquireResponse, Backend, LockMode, LockRef, PostgresLocks, QueueMode,
    ReleaseRequest, ReleaseResponse, WakeUp,
};
use handfast_test_services::{Wire, until};
use sqlx::{Connection, PgConnection};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use setup::{acquire_request, fresh, lock_ref, postgres};

/// More than the backend has connections.
const CLIENTS: usize = 40;
/// A test that waits for longer than this has failed.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The last query of a listening connection.
const LISTENING: &str = "datname = current_database() AND (query LIKE 'LISTEN%' \
                         OR query LIKE 'SELECT ''handfast locks listen%')";

/// A client that listens, and waits for a lock of its own.
struct Client {
    queue: LockRef,
    listening: JoinHandle<()>,
    woken: mpsc::UnboundedReceiver<WakeUp>,
}

impl Client {
    async fn begin(backend: &Arc<PostgresLocks>) -> Self {
        let queue = lock_ref(&fresh());
        let (wake_ups, woken) = mpsc::unbounded_channel();
        let (backend, client) = (Arc::clone(backend), queue.id.client);
        let listening = tokio::spawn(async move {
            // The end of this task closes the channel.
            let Err(_) = backend.listen(client, &wake_ups).await;
        });
        let mut client = Self { queue, listening, woken };
        client.hears(WakeUp::All).await;
        client
    }

    async fn hears(&mut self, wake: WakeUp) {
        let heard = async { while self.woken.recv().await.unwrap() != wake {} };
        tokio::time::timeout(WAIT_MAX, heard).await.expect("it is notified in the end");
    }

    /// Holds the client's lock with another acquisition, releases it, and waits for the wake-up.
    async fn is_called(&mut self, backend: &PostgresLocks) {
        let holder = lock_ref(self.queue.name.as_str());
        let granted = backend.acquire(&acquire_request(&holder, QueueMode::NoWait)).await.unwrap();
        assert!(matches!(granted, AcquireResponse::Granted { .. }), "{granted:?}");
        let joined = backend.acquire(&acquire_request(&self.queue, QueueMode::Join)).await.unwrap();
        assert!(matches!(joined, AcquireResponse::Busy { .. }), "{joined:?}");
        backend
            .release(&ReleaseRequest {
                lock_ref: holder,
                refuse_late_requests: false,
                is_uncontended: false,
            })
            .await
            .unwrap();
        self.hears(WakeUp::One(self.queue.id)).await;
        backend
            .release(&ReleaseRequest {
                lock_ref: self.queue.clone(),
                refuse_late_requests: false,
                is_uncontended: false,
            })
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
async fn many_clients_listen_over_one_connection() {
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
async fn listening_client_is_replaced() {
    let backend = Arc::new(PostgresLocks::connect(&postgres().await).await.unwrap());
    let mut clients = clients(&backend, 3).await;
    let first = clients.remove(0);
    first.listening.abort();
    for client in &mut clients {
        // Wake-ups may have been missed.
        client.hears(WakeUp::All).await;
    }
    for client in &mut clients {
        client.is_called(&backend).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listening_connection_is_replaced() {
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
        client.hears(WakeUp::All).await;
        client.is_called(&backend).await;
    }
}

/// A regression: a listening connection sends nothing, so a silent one was listened to forever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_listening_connection_ends() {
    let url = postgres().await;
    let (head, database) = url.rsplit_once('/').unwrap();
    let (head, port) = head.rsplit_once(':').unwrap();
    let (user, host) = head.rsplit_once(['@', '/']).unwrap();
    let (port, user) = (port.parse().unwrap(), &head[..=user.len()]);
    let wire = Wire::to(host.to_owned(), port, b"test/whisper", NonZeroUsize::MIN).unwrap();
    let url = format!("{user}{}/{database}?ssl-mode=disable", wire.address());
    let backend = Arc::new(PostgresLocks::connect(&url).await.unwrap());
    let client = Client::begin(&backend).await;
    let whispering = Arc::clone(&backend);
    let whispering = tokio::spawn(async move {
        let whisper = acquire_request(&lock_ref("test/whisper"), QueueMode::NoWait);
        whispering.acquire(&whisper).await.map(drop)
    });
    until("the wire falls silent", async || wire.is_silent()).await;
    wire.answer_newcomers();
    whispering.abort();
    let ended = tokio::time::timeout(WAIT_MAX, client.listening).await;
    ended.expect("its silence is noticed").unwrap();
}

async fn is_granted(backend: &PostgresLocks, request: AcquireRequest) -> bool {
    matches!(backend.acquire(&request).await.unwrap(), AcquireResponse::Granted { .. })
}

/// A regression: a permit had ended, a writer had taken the lock, and by the clock that was set
/// back the permit was alive again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ended_permit_does_not_touch_the_writer() {
    let url = postgres().await;
    let backend = PostgresLocks::connect(&url).await.unwrap();
    let mut clock = PgConnection::connect(&url).await.unwrap();
    let (reader, lease) = (lock_ref(&fresh()), Duration::from_secs(30));
    let writer = lock_ref(reader.name.as_str());
    let part =
        AcquireRequest { mode: LockMode::READ, ..acquire_request(&reader, QueueMode::NoWait) };
    assert!(is_granted(&backend, part.clone()).await);
    for ends in [
        "UPDATE distributed_lock_share SET expires_at = expires_at - interval '1 hour' \
         WHERE name = $1",
        "UPDATE distributed_lock SET expires_at = expires_at - interval '1 hour' WHERE name = $1",
    ] {
        sqlx::query(ends).bind(reader.name.as_str()).execute(&mut clock).await.unwrap();
    }
    assert!(is_granted(&backend, acquire_request(&writer, QueueMode::NoWait)).await);
    let lives = "UPDATE distributed_lock_share SET expires_at = expires_at + interval '2 hours' \
                 WHERE name = $1";
    let revived = sqlx::query(lives).bind(reader.name.as_str()).execute(&mut clock).await.unwrap();
    assert_eq!(revived.rows_affected(), 1);

    assert!(!is_granted(&backend, part).await);
    assert_eq!(backend.renew(std::slice::from_ref(&reader), lease).await.unwrap(), [false]);
    let left = backend
        .release(&ReleaseRequest {
            lock_ref: reader,
            refuse_late_requests: false,
            is_uncontended: true,
        })
        .await
        .unwrap();
    let ReleaseResponse::NotHeld { current: Some(current) } = left else { panic!("{left:?}") };
    assert_eq!(current.id, writer.id);
    assert_eq!(backend.renew(&[writer], lease).await.unwrap(), [true]);
}

//! PostgreSQL calls those who wait over one connection of the backend, however many clients it has;
//! and what becomes of locks when its clock is set back.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/stage.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod stage;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use handfast_locks::{Answer, Ask, Backend, Hold, Leave, Left, Place, PostgresLocks, Share, Wake};
use handfast_test_services::Wire;
use sqlx::{Connection, PgConnection};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use stage::{ask, fresh, hold, postgres};

/// More than the backend has connections.
const CLIENTS: usize = 40;
/// After this long a test that waits has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// What a connection that listens has said last.
const LISTENING: &str = "datname = current_database() AND (query LIKE 'LISTEN%' \
                         OR query LIKE 'SELECT ''handfast locks listen%')";

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

/// Who listens says nothing himself, and would listen to it for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_listened_and_fell_silent_ends() {
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
        let whisper = ask(&hold("test/whisper"), Place::None);
        whispering.ask(&whisper).await.map(drop)
    });
    while !wire.is_silent() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    wire.answer_newcomers();
    whispering.abort();
    let ended = tokio::time::timeout(PATIENCE, client.listening).await;
    ended.expect("its silence is noticed").unwrap();
}

async fn is_granted(backend: &PostgresLocks, ask: Ask) -> bool {
    matches!(backend.ask(&ask).await.unwrap(), Answer::Granted { .. })
}

/// It had ended, somebody else has taken all of the lock, and by the clock it is alive again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_the_clock_brings_back_does_not_touch_the_writer() {
    let url = postgres().await;
    let backend = PostgresLocks::connect(&url).await.unwrap();
    let mut clock = PgConnection::connect(&url).await.unwrap();
    let (reader, lease) = (hold(&fresh()), Duration::from_secs(30));
    let writer = hold(reader.name.as_str());
    let part = Ask { share: Share::READ, ..ask(&reader, Place::None) };
    assert!(is_granted(&backend, part.clone()).await);
    for ends in [
        "UPDATE distributed_lock_share SET expires_at = expires_at - interval '1 hour' \
         WHERE name = $1",
        "UPDATE distributed_lock SET expires_at = expires_at - interval '1 hour' WHERE name = $1",
    ] {
        sqlx::query(ends).bind(reader.name.as_str()).execute(&mut clock).await.unwrap();
    }
    assert!(is_granted(&backend, ask(&writer, Place::None)).await);
    let lives = "UPDATE distributed_lock_share SET expires_at = expires_at + interval '2 hours' \
                 WHERE name = $1";
    let revived = sqlx::query(lives).bind(reader.name.as_str()).execute(&mut clock).await.unwrap();
    assert_eq!(revived.rows_affected(), 1);

    assert!(!is_granted(&backend, part).await);
    assert_eq!(backend.renew(std::slice::from_ref(&reader), lease).await.unwrap(), [false]);
    let left =
        backend.leave(&Leave { hold: reader, is_doubtful: false, is_alone: true }).await.unwrap();
    let Left::NotHeld { current: Some(current) } = left else { panic!("{left:?}") };
    assert_eq!(current.token, writer.token);
    assert_eq!(backend.renew(&[writer], lease).await.unwrap(), [true]);
}

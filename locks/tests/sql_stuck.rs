//! Locks in SQL tables when a row stays locked, or an answer never comes: it costs what depends on
//! it, and nothing else. Also: the rows of waiters that died.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/setup.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod setup;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use handfast_locks::{
    AcquireRequest, AcquireResponse, Backend, LockMode, LossReason, MySqlLocks, PostgresLocks,
    QueueMode, ReleaseOutcome, ReleaseRequest,
};
use handfast_test_services::{Wire, until};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};

use setup::{acquire_request, fresh, lock_ref, mysql, over, postgres};

/// A test that waits for longer than this has failed.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Leases of locks that are renewed within a test, in the order in which they are tried: on a busy
/// machine a renewal may be answered too late.
const LEASES: [Duration; 3] =
    [Duration::from_secs(6), Duration::from_secs(18), Duration::from_secs(45)];
/// The connections of a backend.
const CONNECTIONS: usize = 9;
/// More requests than that.
const MANY: usize = 40;

macro_rules! on_every_server {
    ($($name:ident),* $(,)?) => {
        mod on_postgres { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::Server::Postgres).await }
        )* }
        mod on_mysql { $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::Server::MySql).await }
        )* }
    };
}

on_every_server!(
    locked_row_costs_only_its_own_lock,
    requests_for_a_locked_row_make_room_for_others,
    cut_off_requests_keep_no_connection,
    stopped_process_in_a_transaction_frees_its_row,
    waits_for_a_permit_remove_dead_waiters,
);

#[derive(Clone, Copy)]
enum Server {
    Postgres,
    MySql,
}

impl Server {
    /// Makes a database with the tables in it, and returns its URL.
    async fn database(self) -> String {
        match self {
            Self::Postgres => postgres().await,
            Self::MySql => mysql().await,
        }
    }

    async fn backend(self, url: &str) -> Arc<dyn Backend> {
        match self {
            Self::Postgres => Arc::new(PostgresLocks::connect(url).await.unwrap()),
            Self::MySql => Arc::new(MySqlLocks::connect(url).await.unwrap()),
        }
    }

    /// Locks the row of a lock in a session, for as long as the returned value lives.
    async fn freeze(self, url: &str, name: &str) -> Box<dyn Any> {
        let freeze = format!("SELECT fence FROM distributed_lock WHERE name = '{name}' FOR UPDATE");
        let freeze = AssertSqlSafe(freeze);
        match self {
            Self::Postgres => {
                let mut session = PgConnection::connect(url).await.unwrap();
                session.execute("BEGIN").await.unwrap();
                assert_eq!(session.fetch_all(freeze).await.unwrap().len(), 1);
                Box::new(session)
            }
            Self::MySql => {
                let mut session = MySqlConnection::connect(url).await.unwrap();
                session.execute("BEGIN").await.unwrap();
                assert_eq!(session.fetch_all(freeze).await.unwrap().len(), 1);
                Box::new(session)
            }
        }
    }

    /// Inserts the row of a waiter that died long ago.
    async fn bury(self, url: &str, name: &str) {
        let row = format!(
            "INSERT INTO distributed_lock_waiter (name, token, alive_until) \
             VALUES ('{name}', 'dead', '2001-01-01 00:00:00')"
        );
        match self {
            Self::Postgres => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                connection.execute(AssertSqlSafe(row)).await.unwrap();
            }
            Self::MySql => {
                let mut connection = MySqlConnection::connect(url).await.unwrap();
                connection.execute(AssertSqlSafe(row)).await.unwrap();
            }
        }
    }

    async fn has_dead_waiters(self, url: &str) -> bool {
        const DEAD: &str = "SELECT token FROM distributed_lock_waiter WHERE token = 'dead'";
        match self {
            Self::Postgres => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                !connection.fetch_all(DEAD).await.unwrap().is_empty()
            }
            Self::MySql => {
                let mut connection = MySqlConnection::connect(url).await.unwrap();
                !connection.fetch_all(DEAD).await.unwrap().is_empty()
            }
        }
    }

    /// Connects a backend over a wire that falls silent when these bytes pass for the n-th time.
    async fn over_a_wire(
        self,
        url: &str,
        at: &'static [u8],
        nth: usize,
    ) -> (Arc<Wire>, Arc<dyn Backend>) {
        let (head, database) = url.rsplit_once('/').unwrap();
        let (head, port) = head.rsplit_once(':').unwrap();
        let (scheme, host) = head.rsplit_once(['@', '/']).unwrap();
        let (port, nth) = (port.parse().unwrap(), nth.try_into().unwrap());
        let wire = Wire::to(host.to_owned(), port, at, nth).unwrap();
        let scheme = &head[..=scheme.len()];
        let no_tls = match self {
            Self::Postgres => "disable",
            Self::MySql => "disabled",
        };
        let url = format!("{scheme}{}/{database}?ssl-mode={no_tls}", wire.address());
        (wire, self.backend(&url).await)
    }
}

async fn is_granted(backend: &dyn Backend, request: &AcquireRequest) -> bool {
    matches!(backend.acquire(request).await, Ok(AcquireResponse::Granted { .. }))
}

async fn locked_row_costs_only_its_own_lock(server: Server) {
    let url = server.database().await;
    for lease in LEASES {
        if Box::pin(others_outlive_a_stuck_lock(server, &url, lease)).await {
            return;
        }
    }
    panic!("the other locks are lost too");
}

/// Holds three locks until the row of one has been locked for as long as its lease. Returns whether
/// the others are still held.
async fn others_outlive_a_stuck_lock(server: Server, url: &str, lease: Duration) -> bool {
    let locks = over(server.backend(url).await).lease(lease).start().unwrap();
    // All are renewed together, and the lock of the row is the last to be lost.
    let others = [locks.lock(&fresh()).await.unwrap(), locks.lock_shared(&fresh()).await.unwrap()];
    let stuck = locks.lock(&fresh()).await.unwrap();
    let _session = server.freeze(url, stuck.name().as_str()).await;
    let lost = tokio::time::timeout(WAIT_MAX, stuck.lost()).await;
    assert_eq!(lost.expect("it is lost at its deadline"), LossReason::Deadline);
    let mut are_held = true;
    for guard in others {
        are_held &= guard.release().await.unwrap() == ReleaseOutcome::Released;
    }
    are_held
}

async fn requests_for_a_locked_row_make_room_for_others(server: Server) {
    let url = server.database().await;
    let backend = server.backend(&url).await;
    let stuck = lock_ref(&fresh());
    assert!(is_granted(&*backend, &acquire_request(&stuck, QueueMode::NoWait)).await);
    let _session = server.freeze(&url, stuck.name.as_str()).await;
    let waiting = (0..MANY).map(|_| {
        let (backend, request) = (
            Arc::clone(&backend),
            acquire_request(&lock_ref(stuck.name.as_str()), QueueMode::Join),
        );
        tokio::spawn(async move { backend.acquire(&request).await })
    });
    let waiting = Vec::from_iter(waiting);
    let other = acquire_request(&lock_ref(&fresh()), QueueMode::NoWait);
    let granted = tokio::time::timeout(WAIT_MAX, is_granted(&*backend, &other)).await;
    assert!(granted.expect("there is room for others"));
    for waiting in waiting {
        let answer = tokio::time::timeout(WAIT_MAX, waiting).await;
        assert!(answer.expect("no request waits for the row").unwrap().is_err());
    }
}

/// All requests are under way when the server falls silent, since they wait for the same row.
async fn cut_off_requests_keep_no_connection(server: Server) {
    let url = server.database().await;
    let (wire, backend) = server.over_a_wire(&url, b"test/stuck", CONNECTIONS).await;
    let stuck = lock_ref("test/stuck");
    assert!(
        is_granted(&*server.backend(&url).await, &acquire_request(&stuck, QueueMode::NoWait)).await
    );
    let _session = server.freeze(&url, "test/stuck").await;
    let request =
        ReleaseRequest { lock_ref: stuck, refuse_late_requests: false, is_uncontended: true };
    let leaving = async {
        futures::future::join_all((0..MANY).map(|_| backend.release(&request))).await;
        panic!("the silent server answers");
    };
    tokio::select! {
        () = leaving => {}
        () = until("the wire falls silent", async || wire.is_silent()) => {}
    }
    wire.answer_newcomers();
    let other = acquire_request(&lock_ref(&fresh()), QueueMode::NoWait);
    let granted = tokio::time::timeout(WAIT_MAX, is_granted(&*backend, &other)).await;
    assert!(granted.expect("there is a connection"));
}

async fn stopped_process_in_a_transaction_frees_its_row(server: Server) {
    let url = server.database().await;
    // The request has locked the row by then.
    let (wire, still) = server.over_a_wire(&url, b"DELETE FROM distributed_lock_share ", 1).await;
    let part = AcquireRequest {
        mode: LockMode::READ,
        ..acquire_request(&lock_ref(&fresh()), QueueMode::NoWait)
    };
    let all = acquire_request(&lock_ref(part.name.as_str()), QueueMode::NoWait);
    let _standing = tokio::spawn(async move { still.acquire(&part).await });
    let backend = server.backend(&url).await;
    let is_taken = async || wire.is_silent() && is_granted(&*backend, &all).await;
    until("its row is free", is_taken).await;
}

/// A regression: a lock that was only taken in shared mode kept dead waiters forever.
async fn waits_for_a_permit_remove_dead_waiters(server: Server) {
    let (url, name) = (server.database().await, fresh());
    let backend = server.backend(&url).await;
    let permit = |queue| AcquireRequest {
        mode: LockMode::Shared { permits: 1 },
        ..acquire_request(&lock_ref(&name), queue)
    };
    assert!(is_granted(&*backend, &permit(QueueMode::NoWait)).await);
    server.bury(&url, &name).await;
    assert!(server.has_dead_waiters(&url).await);
    assert!(!is_granted(&*backend, &permit(QueueMode::Join)).await);
    assert!(!server.has_dead_waiters(&url).await);
}

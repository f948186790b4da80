//! What becomes of locks in SQL tables when a row stays locked, or an answer never comes: it costs
//! what depends on it, and nothing else. And of the rows of those who died.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/stage.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod stage;

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use handfast_locks::{
    Answer, Ask, Backend, Leave, Lost, MySqlLocks, Outcome, Place, PostgresLocks, Share,
};
use handfast_test_services::Wire;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};

use stage::{ask, fresh, hold, mysql, over, postgres};

/// After this long a test that waits has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// Those of a backend.
const CONNECTIONS: usize = 9;
/// More than that.
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
    a_row_that_stays_locked_costs_its_own_lock_alone,
    requests_for_a_row_that_stays_locked_make_room_for_others,
    requests_that_were_cut_off_keep_no_connection,
    a_process_that_stands_still_in_a_transaction_frees_its_row,
    dead_waiters_are_removed_by_those_who_wait_for_a_part,
);

#[derive(Clone, Copy)]
enum Server {
    Postgres,
    MySql,
}

impl Server {
    /// The URL of a fresh database with the tables in it.
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

    /// A session that has locked the row of a lock, for as long as it lives.
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

    /// The row of a waiter who died long ago.
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

    /// A backend over a wire that falls silent where these bytes pass for the n-th time.
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

async fn is_granted(backend: &dyn Backend, ask: &Ask) -> bool {
    matches!(backend.ask(ask).await, Ok(Answer::Granted { .. }))
}

async fn a_row_that_stays_locked_costs_its_own_lock_alone(server: Server) {
    let url = server.database().await;
    let locks = over(server.backend(&url).await).lease(Duration::from_secs(6)).start().unwrap();
    // All are renewed together, and the one of the row would be lost last.
    let others = [locks.lock(&fresh()).await.unwrap(), locks.lock_shared(&fresh()).await.unwrap()];
    let stuck = locks.lock(&fresh()).await.unwrap();
    let _session = server.freeze(&url, stuck.name().as_str()).await;
    let lost = tokio::time::timeout(PATIENCE, stuck.lost()).await;
    assert_eq!(lost.expect("it is lost at its deadline"), Lost::Deadline);
    for guard in others {
        assert_eq!(guard.release().await.unwrap(), Outcome::Released);
    }
}

async fn requests_for_a_row_that_stays_locked_make_room_for_others(server: Server) {
    let url = server.database().await;
    let backend = server.backend(&url).await;
    let stuck = hold(&fresh());
    assert!(is_granted(&*backend, &ask(&stuck, Place::None)).await);
    let _session = server.freeze(&url, stuck.name.as_str()).await;
    let waiting = (0..MANY).map(|_| {
        let (backend, ask) = (Arc::clone(&backend), ask(&hold(stuck.name.as_str()), Place::Join));
        tokio::spawn(async move { backend.ask(&ask).await })
    });
    let waiting = Vec::from_iter(waiting);
    let other = ask(&hold(&fresh()), Place::None);
    let granted = tokio::time::timeout(PATIENCE, is_granted(&*backend, &other)).await;
    assert!(granted.expect("there is room for others"));
    for waiting in waiting {
        let answer = tokio::time::timeout(PATIENCE, waiting).await;
        assert!(answer.expect("nobody waits for the row").unwrap().is_err());
    }
}

/// They are all under way when the server falls silent, since they wait for the same row.
async fn requests_that_were_cut_off_keep_no_connection(server: Server) {
    let url = server.database().await;
    let (wire, backend) = server.over_a_wire(&url, b"test/stuck", CONNECTIONS).await;
    let stuck = hold("test/stuck");
    assert!(is_granted(&*server.backend(&url).await, &ask(&stuck, Place::None)).await);
    let _session = server.freeze(&url, "test/stuck").await;
    let leave = Leave { hold: stuck, is_doubtful: false, is_alone: true };
    let leaving = async {
        futures::future::join_all((0..MANY).map(|_| backend.leave(&leave))).await;
        panic!("somebody answers");
    };
    let silent = async {
        while !wire.is_silent() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        () = leaving => {}
        () = silent => {}
    }
    wire.answer_newcomers();
    let other = ask(&hold(&fresh()), Place::None);
    let granted = tokio::time::timeout(PATIENCE, is_granted(&*backend, &other)).await;
    assert!(granted.expect("there is a connection"));
}

async fn a_process_that_stands_still_in_a_transaction_frees_its_row(server: Server) {
    let url = server.database().await;
    // It has locked the row by then.
    let (wire, still) = server.over_a_wire(&url, b"DELETE FROM distributed_lock_share ", 1).await;
    let part = Ask { share: Share::READ, ..ask(&hold(&fresh()), Place::None) };
    let all = ask(&hold(part.name.as_str()), Place::None);
    let _standing = tokio::spawn(async move { still.ask(&part).await });
    let backend = server.backend(&url).await;
    let taken = async {
        while !wire.is_silent() || !is_granted(&*backend, &all).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, taken).await.expect("its row is free in the end");
}

/// A lock that nobody takes as a whole kept them for ever.
async fn dead_waiters_are_removed_by_those_who_wait_for_a_part(server: Server) {
    let (url, name) = (server.database().await, fresh());
    let backend = server.backend(&url).await;
    let permit = |place| Ask { share: Share::One { of: 1 }, ..ask(&hold(&name), place) };
    assert!(is_granted(&*backend, &permit(Place::None)).await);
    server.bury(&url, &name).await;
    assert!(server.has_dead_waiters(&url).await);
    assert!(!is_granted(&*backend, &permit(Place::Join)).await);
    assert!(!server.has_dead_waiters(&url).await);
}

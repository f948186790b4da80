//! The protected resource: a number in a row of each database, and in Redis.

use std::time::Duration;

use handfast_locks::fencing::{FencedKey, claim};
use handfast_locks::{FencingToken, LockError, LockName};
use handfast_migrations::{Database, client_migrations};
use redis::AsyncConnectionConfig;
use redis::aio::MultiplexedConnection;
use sqlx::mysql::{MySqlPool, MySqlPoolOptions};
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqliteSynchronous};
use sqlx::{Executor, MySql, Postgres, Sqlite, Transaction};

use crate::setup::{fresh, mysql, postgres, server};

/// Transactions at a time on one server: two for each lock.
const CONNECTIONS: u32 = 45;

/// The time limit of a request to a server.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// A number that is read and written under a lock.
pub(crate) trait Resource {
    /// A local transaction that has claimed and read.
    type Open;
    /// Whether an open transaction that has claimed keeps others from claiming.
    const CLAIMS_LOCK: bool;

    /// Reads, and shows no token.
    async fn read(&self) -> i64;
    /// Claims, then reads.
    async fn begin(
        &self,
        name: &LockName,
        fencing_token: FencingToken,
    ) -> Result<(Self::Open, i64), LockError>;
    /// Ends a transaction that has not written.
    async fn commit(&self, open: Self::Open);
    /// Writes in an open transaction, and ends it.
    async fn finish(
        &self,
        open: Self::Open,
        fencing_token: FencingToken,
        number: i64,
    ) -> Result<(), LockError>;
    /// Claims and writes, in one transaction of its own.
    async fn write(
        &self,
        name: &LockName,
        fencing_token: FencingToken,
        number: i64,
    ) -> Result<(), LockError>;
}

macro_rules! row {
    ($name:ident, $database:ty, $pool:ty, $read:literal, $write:literal) => {
        #[derive(Debug)]
        pub(crate) struct $name {
            pool: $pool,
            id: i64,
            _folder: Option<tempfile::TempDir>,
        }

        impl $name {
            /// Makes the rows from 1, in a pool.
            async fn rows(pool: &$pool, count: u32) -> Vec<Self> {
                let table = "CREATE TABLE paused (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)";
                pool.execute(table).await.unwrap();
                let mut rows = Vec::new();
                for id in 1..=i64::from(count) {
                    let insert = format!("INSERT INTO paused (id, n) VALUES ({id}, 0)");
                    pool.execute(sqlx::AssertSqlSafe(insert)).await.unwrap();
                    rows.push(Self { pool: pool.clone(), id, _folder: None });
                }
                rows
            }
        }

        impl Resource for $name {
            type Open = Transaction<'static, $database>;
            const CLAIMS_LOCK: bool = true;

            async fn read(&self) -> i64 {
                let read = sqlx::query_scalar($read).bind(self.id);
                read.fetch_one(&self.pool).await.unwrap()
            }

            async fn begin(
                &self,
                name: &LockName,
                fencing_token: FencingToken,
            ) -> Result<(Self::Open, i64), LockError> {
                let mut local = self.pool.begin().await.unwrap();
                claim(&mut local, name, fencing_token).await?;
                let read = sqlx::query_scalar($read).bind(self.id);
                let number = read.fetch_one(&mut *local).await.unwrap();
                Ok((local, number))
            }

            async fn commit(&self, open: Self::Open) {
                open.commit().await.unwrap();
            }

            async fn finish(
                &self,
                mut open: Self::Open,
                _fence: FencingToken,
                number: i64,
            ) -> Result<(), LockError> {
                let write = sqlx::query($write).bind(number).bind(self.id);
                write.execute(&mut *open).await.unwrap();
                open.commit().await.unwrap();
                Ok(())
            }

            async fn write(
                &self,
                name: &LockName,
                fencing_token: FencingToken,
                number: i64,
            ) -> Result<(), LockError> {
                let mut local = self.pool.begin().await.unwrap();
                claim(&mut local, name, fencing_token).await?;
                self.finish(local, fencing_token, number).await
            }
        }
    };
}

row!(
    PostgresRow,
    Postgres,
    PgPool,
    "SELECT n FROM paused WHERE id = $1",
    "UPDATE paused SET n = $1 WHERE id = $2"
);
row!(
    MySqlRow,
    MySql,
    MySqlPool,
    "SELECT n FROM paused WHERE id = ?",
    "UPDATE paused SET n = ? WHERE id = ?"
);
row!(
    SqliteRow,
    Sqlite,
    SqlitePool,
    "SELECT n FROM paused WHERE id = ?",
    "UPDATE paused SET n = ? WHERE id = ?"
);

impl PostgresRow {
    /// In a database of their own.
    pub(crate) async fn made(count: u32) -> Vec<Self> {
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS);
        Self::rows(&pool.connect(&postgres().await).await.unwrap(), count).await
    }
}

impl MySqlRow {
    /// In a database of their own.
    pub(crate) async fn made(count: u32) -> Vec<Self> {
        let pool = MySqlPoolOptions::new().max_connections(CONNECTIONS);
        Self::rows(&pool.connect(&mysql().await).await.unwrap(), count).await
    }
}

impl SqliteRow {
    /// Makes a file for each, since a stopped transaction stops the whole file. There is no power
    /// cut in this test, so nothing need be synced.
    pub(crate) async fn made(count: u32) -> Vec<Self> {
        let mut rows = Vec::new();
        for _ in 0..count {
            let folder = tempfile::tempdir().unwrap();
            let options = SqliteConnectOptions::new()
                .filename(folder.path().join("paused.db"))
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Off)
                .busy_timeout(WAIT_MAX);
            let pool = SqlitePool::connect_with(options).await.unwrap();
            let steps = client_migrations(Database::Sqlite).iter();
            for statement in steps.flat_map(|step| step.statements()) {
                pool.execute(statement).await.unwrap();
            }
            let row = Self::rows(&pool, 1).await.remove(0);
            rows.push(Self { _folder: Some(folder), ..row });
        }
        rows
    }
}

/// Without transactions: each step is a script.
#[derive(Debug)]
pub(crate) struct RedisValue {
    key: String,
    connection: MultiplexedConnection,
}

impl RedisValue {
    pub(crate) async fn made(count: u32) -> Vec<Self> {
        let client = redis::Client::open(server("HANDFAST_TEST_REDIS")).unwrap();
        // Longer than a busy machine pauses.
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(WAIT_MAX));
        let connection = client.get_multiplexed_async_connection_with_config(&patient);
        let connection = connection.await.unwrap();
        (0..count).map(|_| Self { key: fresh(), connection: connection.clone() }).collect()
    }
}

impl Resource for RedisValue {
    type Open = ();
    const CLAIMS_LOCK: bool = false;

    async fn read(&self) -> i64 {
        let mut connection = self.connection.clone();
        let number: Option<i64> =
            redis::cmd("GET").arg(&self.key).query_async(&mut connection).await.unwrap();
        number.unwrap_or_default()
    }

    async fn begin(
        &self,
        _name: &LockName,
        fencing_token: FencingToken,
    ) -> Result<((), i64), LockError> {
        let mut connection = self.connection.clone();
        let value = FencedKey::new(&self.key).claim(&mut connection, fencing_token).await?;
        let number = value.map(|value| String::from_utf8(value).unwrap().parse().unwrap());
        Ok(((), number.unwrap_or_default()))
    }

    async fn commit(&self, (): ()) {}

    async fn finish(
        &self,
        (): (),
        fencing_token: FencingToken,
        number: i64,
    ) -> Result<(), LockError> {
        let mut connection = self.connection.clone();
        let value = number.to_string();
        FencedKey::new(&self.key).set(&mut connection, fencing_token, value.as_bytes()).await
    }

    async fn write(
        &self,
        _name: &LockName,
        fencing_token: FencingToken,
        number: i64,
    ) -> Result<(), LockError> {
        self.finish((), fencing_token, number).await
    }
}

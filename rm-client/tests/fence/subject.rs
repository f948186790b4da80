//! The subjects of the tests: a fence on a database at an isolation level, or on Redis.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::Xid;
use handfast::fence::{Fence, FenceError, Fenced, FencedScript, Operation};
use sqlx::{Executor, MySql, Pool, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase};
use crate::model::{Call, Ended, Failure};

/// The work of a branch inserts a row here, in the same local transaction.
const EFFECT: &str =
    "CREATE TABLE effect (n INT, xid VARCHAR(64) NOT NULL, operation VARCHAR(16) NOT NULL)";

/// A place that can hold a fence.
pub(crate) trait Subject: Sync {
    /// Runs an operation, whose work inserts a trace or fails.
    fn run<'s>(&'s self, fence: &'s Fence, call: Call) -> BoxFuture<'s, Ended>;
    /// Returns the traces of a branch's work, sorted.
    fn effects<'s>(&'s self, xid: &'s Xid) -> BoxFuture<'s, Vec<String>>;
}

/// Returns a name that no other branch of this run has. All names have the same length, so that the
/// branches are neighbours in the table.
pub(crate) fn fence() -> (Xid, Fence) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static LAST: AtomicU64 = AtomicU64::new(100_000);
    let number = LAST.fetch_add(1, Ordering::Relaxed);
    // Processes of one test run share a Redis.
    let xid: Xid = format!("test-{}:7091:{number}", std::process::id()).parse().unwrap();
    let fence = Fence::new(&xid, 7, "test").unwrap();
    (xid, fence)
}

/// A database at an isolation level.
pub(crate) struct Local<DB: Levels> {
    pub(crate) stage: Stage<DB>,
    pub(crate) pool: Pool<DB>,
    pub(crate) level: &'static str,
}

impl<DB: Levels> Local<DB> {
    /// Creates one for every isolation level, each with a database of its own.
    pub(crate) async fn at_every_level() -> Vec<Self> {
        let mut locals = Vec::new();
        for level in DB::LEVELS {
            locals.push(Self::at(level).await);
        }
        locals
    }

    pub(crate) async fn at(level: &'static str) -> Self {
        let stage = Stage::<DB>::new(&[EFFECT]).await;
        let pool = DB::at_level(&stage.pool, level).await;
        Self { stage, pool, level }
    }
}

impl<DB: Levels> Local<DB> {
    async fn run_once(&self, fence: &Fence, call: Call) -> Result<Fenced<()>, Failure> {
        let sql = effect_of(&xid_of(fence), call.operation);
        let ended = fence.run(&self.pool, call.operation, async |mut local| {
            DB::write(&mut local, &sql).await.map_err(|error| Failure::Work(error.into()))?;
            if call.fails { Err(Failure::OnPurpose) } else { Ok(()) }
        });
        ended.await
    }
}

impl<DB: Levels> Subject for Local<DB> {
    fn run<'s>(&'s self, fence: &'s Fence, call: Call) -> BoxFuture<'s, Ended> {
        async move {
            loop {
                match self.run_once(fence, call).await {
                    // At this level a writer must be ready to repeat its own work, even after as
                    // many conflicts with neighbours as the fence repeats by itself.
                    Err(
                        Failure::Work(FenceError::Conflict { .. })
                        | Failure::Fence(FenceError::Conflict { .. }),
                    ) if self.level == "SERIALIZABLE" => {}
                    ended => return ended.into(),
                }
            }
        }
        .boxed()
    }

    fn effects<'s>(&'s self, xid: &'s Xid) -> BoxFuture<'s, Vec<String>> {
        async move {
            let sql =
                format!("SELECT operation FROM effect WHERE xid = '{xid}' ORDER BY operation");
            let rows = DB::raw_rows(&self.stage.pool, &sql).await.unwrap();
            rows.into_iter().map(|mut row| row.remove(0).unwrap()).collect()
        }
        .boxed()
    }
}

pub(crate) fn effect_of(xid: &str, operation: Operation) -> String {
    format!("INSERT INTO effect (n, xid, operation) VALUES (1, '{xid}', '{operation}')")
}

/// Returns the fence's XID, from its text.
pub(crate) fn xid_of(fence: &Fence) -> String {
    fence.to_string().rsplit_once(' ').unwrap().1.to_owned()
}

/// A database whose sessions can be set to isolation levels.
pub(crate) trait Levels: TestDatabase {
    const LEVELS: &'static [&'static str];

    fn at_level<'p>(pool: &'p Pool<Self>, level: &'static str) -> BoxFuture<'p, Pool<Self>>;
    /// Executes SQL in a local transaction of the caller.
    fn write<'l>(
        local: &'l mut sqlx::Transaction<'_, Self>,
        sql: &'l str,
    ) -> BoxFuture<'l, Result<(), sqlx::Error>>;
}

macro_rules! levels {
    ($options:ty, $set:literal) => {
        fn at_level<'p>(pool: &'p Pool<Self>, level: &'static str) -> BoxFuture<'p, Pool<Self>> {
            let options = pool.connect_options().as_ref().clone();
            async move {
                let pool = <$options>::new().max_connections(40).acquire_timeout(PATIENCE);
                let pool = pool.after_connect(move |connection, _| {
                    let set =
                        if level.is_empty() { "SELECT 1".to_owned() } else { format!($set, level) };
                    async move { connection.execute(sqlx::AssertSqlSafe(set)).await.map(drop) }
                        .boxed()
                });
                pool.connect_with(options).await.unwrap()
            }
            .boxed()
        }

        fn write<'l>(
            local: &'l mut sqlx::Transaction<'_, Self>,
            sql: &'l str,
        ) -> BoxFuture<'l, Result<(), sqlx::Error>> {
            async move { local.execute(sqlx::AssertSqlSafe(sql.to_owned())).await.map(drop) }
                .boxed()
        }
    };
}

const PATIENCE: Duration = Duration::from_secs(120);

impl Levels for Postgres {
    const LEVELS: &'static [&'static str] = &["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
    levels!(
        sqlx::postgres::PgPoolOptions,
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {}"
    );
}

impl Levels for MySql {
    const LEVELS: &'static [&'static str] = &["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];
    levels!(sqlx::mysql::MySqlPoolOptions, "SET SESSION TRANSACTION ISOLATION LEVEL {}");
}

impl Levels for Sqlite {
    const LEVELS: &'static [&'static str] = &[""];
    levels!(sqlx::sqlite::SqlitePoolOptions, "{}");
}

/// Redis, with its data in database 0.
pub(crate) struct RedisSubject {
    pub(crate) connection: redis::aio::MultiplexedConnection,
    work: FencedScript,
}

impl RedisSubject {
    pub(crate) async fn connect() -> Self {
        let url = std::env::var("HANDFAST_TEST_REDIS").unwrap_or_else(|_| {
            panic!("HANDFAST_TEST_REDIS is not set: run the tests with `cargo xtask test`")
        });
        let client = redis::Client::open(url).unwrap();
        // Longer than a busy machine pauses.
        let limit = Some(Duration::from_secs(60));
        let patient = redis::AsyncConnectionConfig::new().set_response_timeout(limit);
        let connection = client.get_multiplexed_async_connection_with_config(&patient);
        let connection = connection.await.unwrap();
        let work = FencedScript::new(
            "if ARGV[2] == 'fails' then return redis.error_reply('PURPOSE served') end
             return redis.call('RPUSH', KEYS[1], ARGV[1])",
        );
        Self { connection, work }
    }
}

impl Subject for RedisSubject {
    fn run<'s>(&'s self, fence: &'s Fence, call: Call) -> BoxFuture<'s, Ended> {
        async move {
            let mut connection = self.connection.clone();
            let fails = if call.fails { "fails" } else { "" };
            let work = self.work.key(format!("effect:{}", xid_of(fence)));
            let work = work.arg(call.operation.to_string()).arg(fails);
            let ended = work.run::<i64>(&mut connection, fence, call.operation).await;
            ended.map_err(on_purpose).into()
        }
        .boxed()
    }

    fn effects<'s>(&'s self, xid: &'s Xid) -> BoxFuture<'s, Vec<String>> {
        async move {
            let mut connection = self.connection.clone();
            let mut command = redis::cmd("LRANGE");
            command.arg(format!("effect:{xid}")).arg(0).arg(-1);
            let mut effects: Vec<String> = command.query_async(&mut connection).await.unwrap();
            effects.sort();
            effects
        }
        .boxed()
    }
}

fn on_purpose(error: FenceError) -> Failure {
    if let FenceError::Redis(reply) = &error
        && reply.code() == Some("PURPOSE")
    {
        return Failure::OnPurpose;
    }
    Failure::Fence(error)
}

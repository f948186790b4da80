//! Stores in databases of servers that the whole test run shares, or of a server of one test.

use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures::future::BoxFuture;
use handfast_core::Epoch;
use handfast_server::store::{SqlSettings, SqlStore, Store};
use handfast_test_services::ServerKind;
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, MySqlConnection, PgConnection};

use crate::gate::Gate;
use crate::store_under_test::{LONG, Options, Process, SharedStore, StoreUnderTest, node};

/// A kind of database.
pub(crate) trait Kind: Send + Sync + Sized + 'static {
    /// Names the URL of a server for tests.
    const VARIABLE: &'static str;
    /// Turns encryption off, so that a gate can read the bytes.
    const NO_TLS: &'static str;
    /// Counts the statements in this database that wait for a lock.
    const COUNT_WAITERS: &'static str;
    /// Keeps the values that are put into the table of the records, in a table `carried`.
    const NOTE_CARRIED: &'static [&'static str];
    /// The product, for a server of one test.
    const SERVER: ServerKind;
    /// Makes a database in the server.
    fn create_database(server: &str) -> BoxFuture<'static, (Address, String)>;
    /// Executes SQL.
    fn execute(url: &str, sql: String) -> BoxFuture<'_, ()>;
    /// Reads one number.
    fn number(url: &str, sql: String) -> BoxFuture<'_, i64>;
    /// Begins a transaction with this statement. Dropping the connection rolls it back.
    fn begin(url: &str, sql: String) -> BoxFuture<'_, Box<dyn Any + Send>>;
    /// Returns the answers of a server that has rolled a statement back for a reason that passes.
    fn passing_errors() -> Vec<Vec<u8>>;
}

/// Where a server is, and how its URL begins and goes on.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    /// Scheme, user and password, with `@` at the end.
    pub(crate) user: String,
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// PostgreSQL.
pub(crate) enum Postgres {}
/// MariaDB.
pub(crate) enum MariaDb {}

/// A store in a database of its own.
pub(crate) struct Sql<K> {
    address: Address,
    database: String,
    processes: AtomicU64,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Sql<K> {
    /// Makes a store in this server.
    pub(crate) async fn on(server: &str) -> Self {
        let (address, database) = K::create_database(server).await;
        Self { address, database, processes: AtomicU64::new(0), kind: PhantomData }
    }

    /// Returns the URL of the database at an address.
    pub(crate) fn url_at(&self, host: &str, port: u16) -> String {
        let Self { address: Address { user, .. }, database, .. } = self;
        format!("{user}{host}:{port}/{database}?{}", K::NO_TLS)
    }

    /// Returns host and port of the server.
    pub(crate) fn server(&self) -> String {
        format!("{}:{}", self.address.host, self.address.port)
    }

    pub(crate) fn url(&self) -> String {
        self.url_at(&self.address.host, self.address.port)
    }

    pub(crate) async fn execute(&self, sql: &str) {
        K::execute(&self.url(), sql.to_owned()).await;
    }

    pub(crate) async fn number(&self, sql: &str) -> u64 {
        K::number(&self.url(), sql.to_owned()).await.try_into().unwrap()
    }

    /// Opens the store as another process, with these settings.
    pub(crate) async fn open_with(
        &self,
        options: Options,
        change: impl FnOnce(&mut SqlSettings) + Send,
    ) -> Process {
        let gate = Gate::to((self.address.host.clone(), self.address.port)).await;
        let node = node(self.processes.fetch_add(1, Ordering::Relaxed));
        let url = self.url_at(&gate.address().ip().to_string(), gate.address().port());
        let mut settings = SqlSettings::new(url, node.clone());
        settings.lease = options.lease;
        (settings.tail_bytes, settings.compact_bytes) = (options.tail_bytes, options.compact_bytes);
        change(&mut settings);
        let store = Arc::new(SqlStore::open(settings).await.unwrap());
        Process { node, store, gate }
    }
}

impl<K: Kind> StoreUnderTest for Sql<K> {
    fn create() -> BoxFuture<'static, Self> {
        Box::pin(async {
            let server = std::env::var(K::VARIABLE).unwrap_or_else(|_| {
                panic!("{} is not set: run the tests with `cargo xtask test`", K::VARIABLE)
            });
            Self::on(&server).await
        })
    }

    fn open(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { self.process(LONG).await.store })
    }
}

impl<K: Kind> SharedStore for Sql<K> {
    const DRAWS_EPOCH_WITH_LEASE: bool = true;
    /// The bytes are the same in both orders. They pass with the lease that is taken, and with the
    /// mark.
    const EPOCH_WITH_MARK: (&'static [u8], usize) = (b"ZZZ", 2);
    /// The look at the newest row, which is prepared with the lease and with the mark.
    const BEFORE_MARK: (&'static [u8], usize) = (b"ORDER BY number DESC", 2);
    const COMPACTION: &'static [u8] = b"UPDATE tc_mark";

    fn process(&self, options: Options) -> BoxFuture<'_, Process> {
        Box::pin(self.open_with(options, |_| {}))
    }

    fn wake<'p>(&'p self, process: &'p Process) -> BoxFuture<'p, ()> {
        Box::pin(process.gate.go_on_to_the_end())
    }

    fn end_lease(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.execute("UPDATE tc_lease SET until = until - INTERVAL '2' HOUR"))
    }

    fn batches(&self) -> BoxFuture<'_, (u64, u64)> {
        Box::pin(async {
            let first = self.number("SELECT MIN(number) FROM tc_journal").await;
            (first, self.number("SELECT MAX(number) FROM tc_journal").await)
        })
    }

    fn go_back(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {
            let (_, last) = self.batches().await;
            self.execute(&format!("DELETE FROM tc_journal WHERE number > {}", last - 2)).await;
        })
    }
}

/// A store whose journal is a table.
pub(crate) trait JournalTable: SharedStore {
    /// Adds a row with a batch of another process.
    fn add_row(&self, number: u64, epoch: Epoch) -> BoxFuture<'_, ()>;
}

impl<K: Kind> JournalTable for Sql<K> {
    fn add_row(&self, number: u64, Epoch(epoch): Epoch) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.execute(&format!(
                "INSERT INTO tc_journal (namespace, number, epoch, at, batch) \
                 VALUES ('default', {number}, {epoch}, 0, 'of another')"
            ))
            .await;
        })
    }
}

fn fresh_name() -> String {
    format!("stores_{:016x}", rand::random::<u64>())
}

impl Kind for Postgres {
    const SERVER: ServerKind = ServerKind::Postgres;
    const NOTE_CARRIED: &'static [&'static str] = &[
        "CREATE TABLE carried (value bytea)",
        "CREATE FUNCTION note_carried() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN INSERT INTO carried VALUES (NEW.value); RETURN NEW; END $$",
        "CREATE TRIGGER note_carried AFTER INSERT ON tc_record \
         FOR EACH ROW EXECUTE FUNCTION note_carried()",
    ];
    const VARIABLE: &'static str = "HANDFAST_TEST_POSTGRES";
    const NO_TLS: &'static str = "sslmode=disable";
    const COUNT_WAITERS: &'static str = "SELECT COUNT(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND wait_event_type = 'Lock'";

    fn create_database(server: &str) -> BoxFuture<'static, (Address, String)> {
        let options: PgConnectOptions = server.parse().unwrap();
        Box::pin(async move {
            let name = fresh_name();
            let mut server: PgConnection = options.connect().await.unwrap();
            server.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
            let (host, port) = (options.get_host().to_owned(), options.get_port());
            let user = format!("postgres://{}@", options.get_username());
            (Address { user, host, port }, name)
        })
    }

    fn execute(url: &str, sql: String) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let options: PgConnectOptions = url.parse().unwrap();
            let mut connection = options.connect().await.unwrap();
            connection.execute(AssertSqlSafe(sql)).await.unwrap();
        })
    }

    fn number(url: &str, sql: String) -> BoxFuture<'_, i64> {
        Box::pin(async move {
            let options: PgConnectOptions = url.parse().unwrap();
            let mut connection = options.connect().await.unwrap();
            let query = sqlx::query_scalar(AssertSqlSafe(sql));
            query.fetch_one(&mut connection).await.unwrap()
        })
    }

    fn begin(url: &str, sql: String) -> BoxFuture<'_, Box<dyn Any + Send>> {
        Box::pin(async move {
            let options: PgConnectOptions = url.parse().unwrap();
            let mut connection = options.connect().await.unwrap();
            connection.execute("BEGIN").await.unwrap();
            connection.execute(AssertSqlSafe(sql)).await.unwrap();
            let connection: Box<dyn Any + Send> = Box::new(connection);
            connection
        })
    }

    fn passing_errors() -> Vec<Vec<u8>> {
        // A serialization failure, a deadlock, a wait that took too long.
        let errors = ["40001", "40P01", "55P03"].map(|code| {
            let fields = format!("SERROR\0VERROR\0C{code}\0Mtry again\0\0");
            let length = u32::try_from(fields.len() + 4).unwrap().to_be_bytes();
            [b"E", &length[..], fields.as_bytes(), b"Z\0\0\0\x05I"].concat()
        });
        errors.to_vec()
    }
}

impl Kind for MariaDb {
    const SERVER: ServerKind = ServerKind::MariaDb;
    const NOTE_CARRIED: &'static [&'static str] = &[
        "CREATE TABLE carried (value LONGBLOB)",
        "CREATE TRIGGER note_carried AFTER INSERT ON tc_record \
         FOR EACH ROW INSERT INTO carried VALUES (NEW.value)",
    ];
    const VARIABLE: &'static str = "HANDFAST_TEST_MYSQL";
    const NO_TLS: &'static str = "ssl-mode=DISABLED";
    const COUNT_WAITERS: &'static str = "SELECT COUNT(*) FROM information_schema.innodb_trx t \
        JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id \
        WHERE t.trx_state = 'LOCK WAIT' AND p.db = DATABASE()";

    fn create_database(server: &str) -> BoxFuture<'static, (Address, String)> {
        let options: MySqlConnectOptions = server.parse().unwrap();
        let user = server.split_once('@').map(|(user, _)| format!("{user}@"));
        Box::pin(async move {
            let name = fresh_name();
            let mut server: MySqlConnection = options.connect().await.unwrap();
            server.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
            let (host, port) = (options.get_host().to_owned(), options.get_port());
            (Address { user: user.expect("the server has a user"), host, port }, name)
        })
    }

    fn execute(url: &str, sql: String) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let options: MySqlConnectOptions = url.parse().unwrap();
            let mut connection = options.connect().await.unwrap();
            connection.execute(AssertSqlSafe(sql)).await.unwrap();
        })
    }

    fn number(url: &str, sql: String) -> BoxFuture<'_, i64> {
        Box::pin(async move {
            let options: MySqlConnectOptions = url.parse().unwrap();
            let mut connection = options.connect().await.unwrap();
            let query = sqlx::query_scalar(AssertSqlSafe(sql));
            query.fetch_one(&mut connection).await.unwrap()
        })
    }

    fn begin(url: &str, sql: String) -> BoxFuture<'_, Box<dyn Any + Send>> {
        Box::pin(async move {
            let options: MySqlConnectOptions = url.parse().unwrap();
            let mut connection = options.connect().await.unwrap();
            connection.execute("BEGIN").await.unwrap();
            connection.execute(AssertSqlSafe(sql)).await.unwrap();
            let connection: Box<dyn Any + Send> = Box::new(connection);
            connection
        })
    }

    fn passing_errors() -> Vec<Vec<u8>> {
        // A deadlock, a wait that took too long; TiDB: a conflict of two writes.
        let errors = [(1213_u16, "40001"), (1205, "HY000"), (9007, "HY000")];
        let answers = errors.map(|(code, state)| {
            let body =
                [b"\xff", &code.to_le_bytes()[..], b"#", state.as_bytes(), b"again"].concat();
            let length = u32::try_from(body.len()).unwrap().to_le_bytes();
            [&length[..3], b"\x01", &body].concat()
        });
        answers.to_vec()
    }
}

//! A coordinator, an application's database behind the library, and its twin.

use std::time::Duration;

use handfast::{At, AtResource, Global, GlobalStatus, Handfast, Xid};
use handfast_server::dispatch;
use handfast_server::embedded::{RunningServer, Server};
use handfast_test_services::ASK_EVERY;
use sqlx::Pool;
use sqlx::pool::PoolConnection;

use crate::application::Application;
use crate::database::{Answer, Generator, Product};
use crate::entry::Entry;

/// The rows of all tables: the name of a table and a row as a text, sorted.
pub(crate) type Snapshot = Vec<(String, String)>;

/// An application's databases.
pub(crate) struct Stage<DB: Product> {
    server: RunningServer,
    handfast: Handfast,
    pub(crate) resource: AtResource<DB>,
    pub(crate) ours: Side<DB>,
    pub(crate) twin: Side<DB>,
    /// The first rows.
    pub(crate) start: Snapshot,
}

/// One of the two databases.
pub(crate) struct Side<DB: Product> {
    pub(crate) pool: Pool<DB>,
    /// A connection for the set-up.
    control: PoolConnection<DB>,
    /// Reads all tables.
    dump: String,
    /// Puts the first rows back.
    refill: String,
    /// Sets the number generators to where they are after the first rows.
    generators: Vec<Generator>,
    _directory: Option<tempfile::TempDir>,
}

impl<DB: Product> Stage<DB> {
    pub(crate) async fn new(application: &Application) -> Self {
        let pacing = dispatch::Settings {
            retry_delay_ms_min: 1,
            retry_delay_ms_max: 20,
            ..dispatch::Settings::default()
        };
        let server = Server::builder().memory().listen("127.0.0.1:0").dispatch(pacing);
        let server = server.start().await.unwrap();
        let endpoint = format!("http://{}", server.address());
        let handfast = Handfast::connect(endpoint).application("corpus").await.unwrap();
        let (ours, twin) = (Side::new(application).await, Side::<DB>::new(application).await);
        handfast.migrate(&ours.pool).await.unwrap();
        let trusted = application.trusted_triggers.iter().cloned();
        let resource = trusted.fold(handfast.at(ours.pool.clone()), At::trust_trigger);
        let resource = resource.await.unwrap();
        let start = ours.rows().await;
        assert_eq!(start, twin.rows().await, "{}: the first rows are the same", application.name);
        Self { server, handfast, resource, ours, twin, start }
    }

    pub(crate) async fn begin(&self) -> Global {
        self.handfast.transaction("corpus").begin().await.unwrap()
    }

    /// Removes the databases.
    pub(crate) async fn end(self) {
        DB::remove(&self.ours.pool).await;
        DB::remove(&self.twin.pool).await;
    }

    /// Polls until the global has the expected status.
    pub(crate) async fn await_status(
        &self,
        xid: &Xid,
        expected: impl Fn(GlobalStatus) -> bool,
    ) -> Result<(), String> {
        let reached = async {
            loop {
                let status = self.handfast.outcome(xid).await.unwrap();
                if expected(status) {
                    return Ok(());
                }
                if matches!(status, GlobalStatus::NeedsOperator(_)) {
                    return Err(format!("the global needs an operator: {status:?}"));
                }
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        let reached = tokio::time::timeout(Duration::from_secs(60), reached).await;
        reached.unwrap_or_else(|_| Err("the global does not end in a minute".to_owned()))
    }

    /// Checks that no undo row and no lock is left.
    pub(crate) async fn no_trace_is_left(&self) -> Result<(), String> {
        let locks = self.server.engine().view(|coordinator| coordinator.counts().locks);
        let locks = locks.await.unwrap();
        let undo_rows = DB::texts(&self.ours.pool, "SELECT 'one' FROM undo_log").await;
        let undo_rows = undo_rows.unwrap().len();
        if locks == 0 && undo_rows == 0 {
            return Ok(());
        }
        Err(format!("{locks} locks and {undo_rows} undo rows are left"))
    }

    /// Returns whether both databases hold the first rows: DDL of MariaDB is not rolled back.
    pub(crate) async fn is_at_start(&self) -> bool {
        self.ours.rows().await == self.start && self.twin.rows().await == self.start
    }

    /// Puts the first rows back after a committed statement.
    pub(crate) async fn put_back(&mut self) -> Result<(), String> {
        self.ours.refill().await;
        if self.ours.rows().await == self.start {
            return Ok(());
        }
        Err("the first rows cannot be put back".to_owned())
    }
}

impl<DB: Product> Side<DB> {
    async fn new(application: &Application) -> Self {
        let (pool, directory) = DB::create().await;
        let mut control = pool.acquire().await.unwrap();
        for sql in [&application.schema, &application.rows] {
            let done = DB::raw(&mut control, sql).await;
            done.unwrap_or_else(|error| panic!("{}: {error}", application.name));
        }
        let tables = DB::texts(&pool, DB::list_tables()).await.unwrap();
        let tables: Vec<(String, String)> = tables.into_iter().map(pair).collect();
        let reads: Vec<&str> = tables.iter().map(|(_, read)| read.as_str()).collect();
        let dump = reads.join(" UNION ALL ");
        let refill = refill::<DB>(&tables, &application.rows);
        let generators = DB::generators(&pool).await;
        Self { pool, control, dump, refill, generators, _directory: directory }
    }

    /// Returns the rows of all tables.
    pub(crate) async fn rows(&self) -> Snapshot {
        sorted(DB::texts(&self.pool, &self.dump).await.unwrap())
    }

    /// Executes an entry without the library and rolls it back. Returns its answer and the rows
    /// before the rollback.
    pub(crate) async fn try_out(&mut self, entry: &Entry) -> Result<(Answer, Snapshot), String> {
        self.reset_generators(entry).await;
        let mut local = self.pool.begin().await.unwrap();
        let answer = DB::plain(&mut local, entry).await;
        let answer = answer.map_err(|error| format!("the database alone refuses it: {error}"))?;
        let rows = sorted(DB::texts_in(&mut local, &self.dump).await.unwrap());
        local.rollback().await.unwrap();
        Ok((answer, rows))
    }

    /// Sets the numbers that an entry may take to where they were after the first rows.
    pub(crate) async fn reset_generators(&mut self, entry: &Entry) {
        let sql = entry.sql();
        let takes = ["insert", "replace", "nextval"]
            .iter()
            .any(|word| sql.to_ascii_lowercase().contains(word));
        for generator in self.generators.iter().filter(|_| takes) {
            if generator.table.as_ref().is_none_or(|table| sql.contains(table)) {
                DB::raw(&mut self.control, &generator.sql).await.unwrap();
            }
        }
    }

    async fn refill(&mut self) {
        DB::raw(&mut self.control, &self.refill).await.unwrap();
    }
}

/// Returns SQL that empties all tables and fills them with the first rows.
fn refill<DB: Product>(tables: &[(String, String)], rows: &str) -> String {
    let [unchecked, checked] = DB::UNCHECKED;
    let quote = if DB::FILE == "mariadb" { '`' } else { '"' };
    let delete = |(name, _): &(String, String)| format!("DELETE FROM {quote}{name}{quote};\n");
    // Tables that triggers fill are the last of a schema.
    let deletes: String = tables.iter().map(delete).collect();
    format!("{unchecked};\nBEGIN;\n{deletes}{checked};\n{rows}\nCOMMIT;")
}

fn sorted(rows: Vec<Vec<Option<String>>>) -> Snapshot {
    let mut rows: Snapshot = rows.into_iter().map(pair).collect();
    rows.sort();
    rows
}

fn pair(row: Vec<Option<String>>) -> (String, String) {
    let mut cells = row.into_iter().map(Option::unwrap_or_default);
    (cells.next().unwrap_or_default(), cells.next().unwrap_or_default())
}

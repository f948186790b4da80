//! A database of three accounts that takes part in globals.

use handfast::Handfast;
use sqlx::{ConnectOptions, Pool};

use super::{TestDatabase, TextRow};

const TABLES: &[&str] = &[
    "CREATE TABLE account (id BIGINT NOT NULL PRIMARY KEY, cents BIGINT NOT NULL)",
    "INSERT INTO account VALUES (1, 1000), (2, 1000), (3, 1000)",
];

/// Three accounts of 1000 cents, and the tables of the library.
pub(crate) struct Bank<DB: TestDatabase> {
    pub(crate) pool: Pool<DB>,
    _directory: Option<tempfile::TempDir>,
}

impl<DB: TestDatabase> Bank<DB> {
    /// Makes a database with the accounts.
    pub(crate) async fn new(handfast: &Handfast) -> Self {
        let (pool, directory) = DB::create().await;
        Self { _directory: directory, ..Self::on(handfast, pool).await }
    }

    /// Makes the accounts in an empty database.
    pub(crate) async fn on(handfast: &Handfast, pool: Pool<DB>) -> Self {
        handfast.migrate(&pool).await.unwrap();
        for sql in TABLES {
            DB::raw(&pool, sql).await.unwrap();
        }
        Self { pool, _directory: None }
    }

    /// Returns the URL for another process.
    pub(crate) fn url(&self) -> String {
        self.pool.connect_options().to_url_lossy().to_string()
    }

    pub(crate) async fn accounts(&self) -> Vec<TextRow> {
        let text = DB::TEXT;
        let sql =
            format!("SELECT CAST(id AS {text}), CAST(cents AS {text}) FROM account ORDER BY id");
        DB::raw_rows(&self.pool, &sql).await.unwrap()
    }

    /// Returns the committed amount in an account.
    pub(crate) async fn cents(&self, id: i64) -> i64 {
        self.number(&format!("SELECT cents FROM account WHERE id = {id}")).await
    }

    /// Returns the numbers of undo logs and of guard rows.
    pub(crate) async fn undo_rows(&self) -> (i64, i64) {
        let count = "SELECT COUNT(*) FROM undo_log WHERE log_status";
        (self.number(&format!("{count} = 0")).await, self.number(&format!("{count} = 1")).await)
    }

    /// Returns whether there is an account with this id.
    pub(crate) async fn has(&self, id: i64) -> bool {
        self.number(&format!("SELECT COUNT(*) FROM account WHERE id = {id}")).await == 1
    }

    /// Returns the total of all accounts.
    pub(crate) async fn sum(&self) -> i64 {
        self.number("SELECT SUM(cents) FROM account").await
    }

    async fn number(&self, sql: &str) -> i64 {
        let sql = format!("SELECT CAST(({sql}) AS {})", DB::TEXT);
        let rows = DB::raw_rows(&self.pool, &sql).await.unwrap();
        rows[0][0].as_deref().unwrap().parse().unwrap()
    }
}

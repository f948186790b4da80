//! SQLite databases of a test.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};

use crate::error::KitError;
use crate::kit::TestKit;

/// The connections of a pool. Each is a thread; one writes at a time in any case.
const CONNECTIONS_MAX: u32 = 4;

impl TestKit {
    /// Makes an empty SQLite database with this schema and the tables of the library. It is a file
    /// that is not synced, and goes with the kit.
    ///
    /// For a database of your own call [`Handfast::migrate`](handfast::Handfast::migrate) and use
    /// its pool.
    ///
    /// ```
    /// # use handfast_test::TestKit;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), handfast_test::KitError> {
    /// let kit = TestKit::start().await?;
    /// let stock = kit.sqlite("CREATE TABLE stock (id INTEGER PRIMARY KEY, units INTEGER)").await?;
    /// let orders = kit.sqlite("CREATE TABLE orders (id INTEGER PRIMARY KEY)").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`KitError::Database`] if the database refuses the schema.
    pub async fn sqlite(&self, schema: &'static str) -> Result<SqlitePool, KitError> {
        let number = self.databases.fetch_add(1, Ordering::SeqCst);
        let options = SqliteConnectOptions::new()
            .filename(self.files.path().join(format!("{number}.db")))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Off)
            .busy_timeout(Duration::from_secs(5));
        let faults = Arc::clone(&self.faults);
        let pool = SqlitePoolOptions::new().max_connections(CONNECTIONS_MAX).after_connect(
            move |connection, _| {
                let faults = Arc::clone(&faults);
                Box::pin(async move {
                    let mut handle = connection.lock_handle().await?;
                    // `false` has SQLite itself roll the transaction back.
                    handle.set_commit_hook(move || faults.at_commit());
                    Ok(())
                })
            },
        );
        let pool = pool.connect_with(options).await?;
        self.handfast().migrate(&pool).await?;
        sqlx::raw_sql(schema).execute(&pool).await?;
        Ok(pool)
    }
}

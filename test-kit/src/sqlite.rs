//! SQLite databases of a test.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::FutureExt;
use sqlx::Connection;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePool, SqlitePoolOptions,
    SqliteSynchronous,
};

use crate::error::KitError;
use crate::faults::Faults;
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
        let pool = SqlitePoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .after_connect(move |connection, _| {
                watch_commits(connection, Arc::clone(&faults)).boxed()
            })
            .after_release(|connection, _| is_usable(connection).boxed());
        let pool = pool.connect_with(options).await?;
        self.handfast().migrate(&pool).await?;
        sqlx::raw_sql(schema).execute(&pool).await?;
        Ok(pool)
    }
}

/// Has SQLite ask about each COMMIT that has changed rows of the service. The library's own tables
/// are WITHOUT ROWID, of which SQLite reports no change, so its sweeps are not counted.
async fn watch_commits(
    connection: &mut SqliteConnection,
    faults: Arc<Faults>,
) -> Result<(), sqlx::Error> {
    let mut handle = connection.lock_handle().await?;
    let has_changed = Arc::new(AtomicBool::new(false));
    let (changes, ends) = (Arc::clone(&has_changed), Arc::clone(&has_changed));
    handle.set_update_hook(move |_| changes.store(true, Ordering::SeqCst));
    // `false` has SQLite itself roll the transaction back.
    handle
        .set_commit_hook(move || !has_changed.swap(false, Ordering::SeqCst) || faults.at_commit());
    handle.set_rollback_hook(move || ends.store(false, Ordering::SeqCst));
    Ok(())
}

/// Whether sqlx still counts right: after a COMMIT that SQLite has turned into a ROLLBACK it takes
/// the connection for one with an open transaction, and refuses to begin another.
async fn is_usable(connection: &mut SqliteConnection) -> Result<bool, sqlx::Error> {
    // Behind the rollback that the end of a transaction has left to do.
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}

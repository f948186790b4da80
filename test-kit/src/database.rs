//! The user's database, as far as the kit looks into it.

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use handfast::AtDatabase;
use sqlx::{AssertSqlSafe, Pool, Row};

/// Undo rows that a message shows.
const SHOWN_MAX: usize = 20;
/// The rows of branches whose phase two is not done. Guard rows, with another status, keep a late
/// local transaction out, and are meant to stay for a day.
const UNDO_ROWS: &str = "SELECT xid, branch_id, rollback_info FROM undo_log WHERE log_status = 0 \
                         ORDER BY xid, branch_id LIMIT 20";

/// A database that a test can use: `sqlx::Sqlite`, `sqlx::Postgres` or `sqlx::MySql`. Not to be
/// implemented elsewhere.
///
/// ```
/// use handfast_test::{TestDatabase, TestKit};
/// use sqlx::Pool;
///
/// async fn check<DB: TestDatabase>(kit: &TestKit, pool: &Pool<DB>) {
///     kit.assert_nothing_left(pool).await;
/// }
/// ```
pub trait TestDatabase: AtDatabase + sealed::Looks {}

impl<DB: AtDatabase + sealed::Looks> TestDatabase for DB {}

/// An undo row.
#[derive(Debug)]
pub struct UndoRow {
    pub(crate) xid: String,
    pub(crate) branch: i64,
    pub(crate) log: String,
}

pub(crate) mod sealed {
    use super::{BoxFuture, Pool, UndoRow};

    /// The kit's use of a database.
    pub trait Looks: sqlx::Database {
        /// Reads the undo rows of branches whose phase two is not done, up to a limit.
        fn undo_rows(pool: &Pool<Self>) -> BoxFuture<'_, Result<Vec<UndoRow>, sqlx::Error>>;

        /// Runs statements that know no global.
        fn run(pool: &Pool<Self>, sql: String) -> BoxFuture<'_, Result<(), sqlx::Error>>;
    }
}

/// One implementation a database, as sqlx has one `Executor` a database.
macro_rules! looks {
    ($feature:literal, $database:ty) => {
        #[cfg(feature = $feature)]
        impl sealed::Looks for $database {
            fn undo_rows(pool: &Pool<Self>) -> BoxFuture<'_, Result<Vec<UndoRow>, sqlx::Error>> {
                async move {
                    let rows = sqlx::query(UNDO_ROWS).fetch_all(pool).await?;
                    let read = |row: &<$database as sqlx::Database>::Row| {
                        let log: Vec<u8> = row.try_get(2)?;
                        Ok(UndoRow {
                            xid: row.try_get(0)?,
                            branch: row.try_get(1)?,
                            log: String::from_utf8_lossy(&log).into_owned(),
                        })
                    };
                    rows.iter().take(SHOWN_MAX).map(read).collect()
                }
                .boxed()
            }

            fn run(pool: &Pool<Self>, sql: String) -> BoxFuture<'_, Result<(), sqlx::Error>> {
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(pool).map_ok(drop).boxed()
            }
        }
    };
}

looks!("sqlite", sqlx::Sqlite);
looks!("postgres", sqlx::Postgres);
looks!("mysql", sqlx::MySql);

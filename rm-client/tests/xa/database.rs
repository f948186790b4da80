//! Operations on databases that these tests need in addition to the library's.

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::{XaDatabase, XaResource, XaTransaction};
use handfast_test_services::ASK_EVERY;
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, MySql, Pool, Postgres, Row};

use crate::at::TestDatabase;
use crate::child::PATIENCE;
use crate::commit_wire::Wired;

/// A database that can prepare.
pub(crate) trait XaTestDatabase: Wired + TestDatabase + XaDatabase {
    /// Bytes that occur only in a text that prepares a branch.
    const PREPARE: &'static [u8];

    /// Executes SQL in a local transaction.
    fn run_xa<'q>(
        local: &'q mut XaTransaction<'_, Self>,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<u64, sqlx::Error>>;
    /// Executes SQL through the resource.
    fn run_xa_alone<'q>(
        resource: &'q XaResource<Self>,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<u64, sqlx::Error>>;
    /// Lists the names of prepared transactions on the server that contain a text.
    fn listed<'q>(pool: &'q Pool<Self>, holding: &'q str) -> BoxFuture<'q, Vec<String>>;
    /// Prepares a transaction under a name without the library, and ends its session.
    fn prepare_past<'q>(
        pool: &'q Pool<Self>,
        name: &'q Name,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<(), sqlx::Error>>;
    /// Rolls such a transaction back without the library.
    fn roll_back_past<'q>(
        pool: &'q Pool<Self>,
        name: &'q Name,
    ) -> BoxFuture<'q, Result<u64, sqlx::Error>>;
}

macro_rules! xa_basics {
    () => {
        fn run_xa<'q>(
            local: &'q mut XaTransaction<'_, Self>,
            sql: &'q str,
        ) -> BoxFuture<'q, Result<u64, sqlx::Error>> {
            async move {
                let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
                Ok(query.execute(local).await?.rows_affected())
            }
            .boxed()
        }

        fn run_xa_alone<'q>(
            resource: &'q XaResource<Self>,
            sql: &'q str,
        ) -> BoxFuture<'q, Result<u64, sqlx::Error>> {
            async move {
                let query = sqlx::query(AssertSqlSafe(sql.to_owned()));
                Ok(query.execute(resource).await?.rows_affected())
            }
            .boxed()
        }
    };
}

/// The name of a prepared transaction.
pub(crate) enum Name {
    /// A name in the library's format.
    Ours(String),
    /// A name in another format.
    Foreign(String),
}

impl Name {
    fn text(&self) -> &str {
        match self {
            Self::Ours(text) | Self::Foreign(text) => text,
        }
    }

    /// Returns the name in MySQL's syntax.
    fn id(&self) -> String {
        let (global, branch) = self.text().split_at(self.text().len().min(64));
        let format = match self {
            Self::Ours(_) => 0x4861_6e64,
            Self::Foreign(_) => 7,
        };
        format!("'{global}','{branch}',{format}")
    }
}

/// Opens a pool of one connection on the same database.
pub(crate) async fn lone<DB: TestDatabase>(pool: &Pool<DB>) -> Pool<DB> {
    let options = pool.connect_options().as_ref().clone();
    PoolOptions::new().max_connections(1).connect_with(options).await.unwrap()
}

impl XaTestDatabase for Postgres {
    const PREPARE: &'static [u8] = b"PREPARE TRANSACTION";

    xa_basics!();

    fn listed<'q>(pool: &'q Pool<Self>, holding: &'q str) -> BoxFuture<'q, Vec<String>> {
        async move {
            let sql = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()";
            let rows = Self::raw_rows(pool, sql).await.unwrap();
            let names = rows.into_iter().filter_map(|mut row| row.remove(0));
            names.filter(|name| name.contains(holding)).collect()
        }
        .boxed()
    }

    fn prepare_past<'q>(
        pool: &'q Pool<Self>,
        name: &'q Name,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<(), sqlx::Error>> {
        async move {
            let session = lone(pool).await;
            for sql in ["BEGIN", sql, &format!("PREPARE TRANSACTION '{}'", name.text())] {
                Self::raw(&session, sql).await?;
            }
            session.close().await;
            Ok(())
        }
        .boxed()
    }

    fn roll_back_past<'q>(
        pool: &'q Pool<Self>,
        name: &'q Name,
    ) -> BoxFuture<'q, Result<u64, sqlx::Error>> {
        async move { Self::raw(pool, &format!("ROLLBACK PREPARED '{}'", name.text())).await }
            .boxed()
    }
}

impl XaTestDatabase for MySql {
    const PREPARE: &'static [u8] = b"XA PREPARE";

    xa_basics!();

    fn listed<'q>(pool: &'q Pool<Self>, holding: &'q str) -> BoxFuture<'q, Vec<String>> {
        async move {
            let rows = sqlx::raw_sql("XA RECOVER").fetch_all(pool).await.unwrap();
            let name = |row: &sqlx::mysql::MySqlRow| {
                let bytes: Vec<u8> = row.try_get_unchecked(3).unwrap();
                String::from_utf8_lossy(&bytes).into_owned()
            };
            rows.iter().map(name).filter(|name| name.contains(holding)).collect()
        }
        .boxed()
    }

    fn prepare_past<'q>(
        pool: &'q Pool<Self>,
        name: &'q Name,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<(), sqlx::Error>> {
        async move {
            let session = lone(pool).await;
            let xa = |verb: &str| format!("XA {verb} {}", name.id());
            for sql in [&xa("START"), sql, &xa("END"), &xa("PREPARE")] {
                Self::raw(&session, sql).await?;
            }
            let id = "SELECT CAST(CONNECTION_ID() AS CHAR)";
            let id = Self::raw_rows(&session, id).await?.remove(0).remove(0).unwrap();
            session.close().await;
            // Other sessions can end the branch once the server has ended its own session.
            let still = "SELECT CAST(ID AS CHAR) FROM information_schema.PROCESSLIST";
            let still = format!("{still} WHERE ID = {id}");
            let gone = async {
                while !Self::raw_rows(pool, &still).await.unwrap().is_empty() {
                    tokio::time::sleep(ASK_EVERY).await;
                }
            };
            tokio::time::timeout(PATIENCE, gone).await.expect("the session ends");
            Ok(())
        }
        .boxed()
    }

    fn roll_back_past<'q>(
        pool: &'q Pool<Self>,
        name: &'q Name,
    ) -> BoxFuture<'q, Result<u64, sqlx::Error>> {
        async move { Self::raw(pool, &format!("XA ROLLBACK {}", name.id())).await }.boxed()
    }
}

/// Defines one test per database for each generic function `async fn name<DB: XaTestDatabase>()`.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod postgres { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<sqlx::Postgres>().await })* }
        mod mysql { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<sqlx::MySql>().await })* }
    };
}

pub(crate) use on_both;

//! What these tests need from a database beyond the library.

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::{XaDatabase, XaResource, XaTransaction};
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, MySql, Pool, Postgres, Row};

use crate::at::TestDatabase;
use crate::child::PATIENCE;
use crate::commit_wire::Wired;

/// A database that can prepare.
pub(crate) trait XaTestDatabase: Wired + TestDatabase + XaDatabase {
    /// What only a text that prepares a branch holds.
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
    /// The names of what is prepared on the server and holds the text.
    fn listed<'q>(pool: &'q Pool<Self>, holding: &'q str) -> BoxFuture<'q, Vec<String>>;
    /// Prepares a transaction under a name, past the library, and leaves its session.
    fn prepare_past<'q>(
        pool: &'q Pool<Self>,
        name: &'q Name,
        sql: &'q str,
    ) -> BoxFuture<'q, Result<(), sqlx::Error>>;
    /// Rolls it back.
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

/// What a transaction is prepared as.
pub(crate) enum Name {
    /// In the library's form.
    Ours(String),
    /// In somebody else's.
    Foreign(String),
}

impl Name {
    fn text(&self) -> &str {
        match self {
            Self::Ours(text) | Self::Foreign(text) => text,
        }
    }

    /// As MySQL takes it.
    fn id(&self) -> String {
        let (global, branch) = self.text().split_at(self.text().len().min(64));
        let format = match self {
            Self::Ours(_) => 0x4861_6e64,
            Self::Foreign(_) => 7,
        };
        format!("'{global}','{branch}',{format}")
    }
}

/// A pool of one connection, whose session is its own.
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
            // The branch is free for others once the server has ended its session.
            let still = "SELECT CAST(ID AS CHAR) FROM information_schema.PROCESSLIST";
            let still = format!("{still} WHERE ID = {id}");
            let gone = async { while !Self::raw_rows(pool, &still).await.unwrap().is_empty() {} };
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

/// Makes one test per database of generic functions `async fn name<DB: XaTestDatabase>()`.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod postgres { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<sqlx::Postgres>().await })* }
        mod mysql { $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)] async fn $name() { super::$name::<sqlx::MySql>().await })* }
    };
}

pub(crate) use on_both;

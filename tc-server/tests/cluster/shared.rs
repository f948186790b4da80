//! A store of its own on one of the servers that the test run shares.

use futures::future::{BoxFuture, FutureExt, ready};
use handfast_test_services::ClusterStore;
use reqwest::Url;
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, PgConnection};

/// A kind of store that nodes share.
pub(crate) trait Shared: 'static {
    /// Makes an empty store.
    fn create() -> BoxFuture<'static, ClusterStore>;
}

/// PostgreSQL.
pub(crate) enum Postgres {}
/// MariaDB.
pub(crate) enum MariaDb {}
/// etcd.
pub(crate) enum Etcd {}

impl Shared for Postgres {
    fn create() -> BoxFuture<'static, ClusterStore> {
        async {
            let url = server("HANDFAST_TEST_POSTGRES");
            let mut connection = PgConnection::connect(url.as_str()).await.unwrap();
            let name = fresh();
            let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
            connection.execute(create).await.unwrap();
            with_database(url, &name)
        }
        .boxed()
    }
}

impl Shared for MariaDb {
    fn create() -> BoxFuture<'static, ClusterStore> {
        async {
            let url = server("HANDFAST_TEST_MYSQL");
            let mut connection = MySqlConnection::connect(url.as_str()).await.unwrap();
            let name = fresh();
            let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
            connection.execute(create).await.unwrap();
            with_database(url, &name)
        }
        .boxed()
    }
}

impl Shared for Etcd {
    fn create() -> BoxFuture<'static, ClusterStore> {
        let endpoint = variable("HANDFAST_TEST_ETCD");
        ready(ClusterStore::Etcd { endpoint, namespace: fresh() }).boxed()
    }
}

fn server(name: &str) -> Url {
    variable(name).parse().unwrap()
}

fn variable(name: &str) -> String {
    std::env::var(name).expect("`cargo xtask test` starts the servers")
}

fn fresh() -> String {
    format!("cluster_{:016x}", rand::random::<u64>())
}

fn with_database(mut url: Url, name: &str) -> ClusterStore {
    url.set_path(name);
    ClusterStore::Sql(url.into())
}

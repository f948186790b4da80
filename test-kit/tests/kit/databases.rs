//! The user's own databases.

use handfast::AtResource;
use handfast_test::{Fault, TestKit};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, MySql, Pool, Postgres, SqlSafeStr, SqlStr};

use super::complaint;

/// One commit, one rollback and one dirty row, on a database that the kit has not made.
macro_rules! on_a_database {
    ($kit:ident, $pool:ident) => {
        let account: AtResource<_> = $kit.handfast().at($pool.clone()).await.unwrap();
        let pay = async |ends: Result<(), sqlx::Error>| {
            let paid = $kit.handfast().transaction("pay").run(async |_tx| {
                let pay = "UPDATE account SET units = units - 3 WHERE id = 7";
                sqlx::query(pay).execute(&account).await?;
                ends
            });
            // How it ended is what the assertions are for.
            drop(paid.await);
            $kit.last_xid().unwrap()
        };
        let units = async || -> i64 {
            let read = sqlx::query_scalar("SELECT units FROM account WHERE id = 7");
            read.fetch_one(&$pool).await.unwrap()
        };

        $kit.assert_committed(&pay(Ok(())).await).await;
        assert_eq!(units().await, 7);
        $kit.assert_rolled_back(&pay(Err(sqlx::Error::RowNotFound)).await).await;
        assert_eq!(units().await, 7);
        $kit.assert_nothing_left(&$pool).await;

        let foreign = "UPDATE account SET units = 99 WHERE id = 7";
        $kit.inject(Fault::dirty_row(&$pool, foreign));
        let xid = pay(Err(sqlx::Error::RowNotFound)).await;
        $kit.assert_needs_operator(&xid).await;
        $kit.assert_faults_struck();
        assert_eq!(units().await, 99);
        let said = complaint($kit.assert_nothing_left(&$pool)).await;
        assert!(said.contains("undo row of xid"), "{said}");
        assert!(said.contains("units 7 -> 4, now 99"), "{said}");
    };
}

macro_rules! prepare {
    ($kit:ident, $pool:ident) => {
        $kit.handfast().migrate(&$pool).await.unwrap();
        let schema = "CREATE TABLE account (id BIGINT PRIMARY KEY, units BIGINT NOT NULL)";
        $pool.execute(schema).await.unwrap();
        $pool.execute("INSERT INTO account VALUES (7, 10)").await.unwrap();
    };
}

/// The server that `cargo xtask test` has started.
fn server_url(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: see CONTRIBUTING.md"))
}

fn create_database() -> (String, SqlStr) {
    let name = format!("kit_{}", uuid::Uuid::new_v4().simple());
    let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
    (name, create.into_sql_str())
}

#[tokio::test]
async fn postgres() {
    let options: PgConnectOptions = server_url("HANDFAST_TEST_POSTGRES").parse().unwrap();
    let (name, create) = create_database();
    options.clone().connect().await.unwrap().execute(create).await.unwrap();
    let kit = TestKit::start().await.unwrap();
    let pool: Pool<Postgres> = Pool::connect_with(options.database(&name)).await.unwrap();
    prepare!(kit, pool);
    on_a_database!(kit, pool);
}

#[tokio::test]
async fn mariadb() {
    let options: MySqlConnectOptions = server_url("HANDFAST_TEST_MYSQL").parse().unwrap();
    let (name, create) = create_database();
    options.clone().connect().await.unwrap().execute(create).await.unwrap();
    let kit = TestKit::start().await.unwrap();
    let pool: Pool<MySql> = Pool::connect_with(options.database(&name)).await.unwrap();
    prepare!(kit, pool);
    on_a_database!(kit, pool);
}

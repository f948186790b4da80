//! Identifiers that need quotes, and one name in two schemas.

use sqlx::{MySql, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase};

/// Runs statements on a table whose names are key words or have spaces, quotes or capitals.
async fn rows_of_oddly_named_tables_are_undone<DB: TestDatabase>(quote: char) {
    let q =
        |name: &str| format!("{quote}{}{quote}", name.replace(quote, &format!("{quote}{quote}")));
    let (table, id, n) = (q("Order \"by\" `x`"), q("select"), q("Na me?$1"));
    let create =
        format!("CREATE TABLE {table} ({id} BIGINT NOT NULL, {n} BIGINT, PRIMARY KEY ({id}))");
    let insert = format!("INSERT INTO {table} VALUES (1, 10), (2, 20)");
    let stage = Stage::<DB>::new(&[&create, &insert]).await;
    for sql in [
        format!("UPDATE {table} SET {n} = {n} + 1 WHERE {id} = 1"),
        format!("UPDATE {table} AS t SET {n} = 5 WHERE t.{id} IN (1, 2)"),
        format!("DELETE FROM {table} WHERE {n} = 20"),
        format!("INSERT INTO {table} ({n}, {id}) VALUES (3, 3)"),
    ] {
        stage.check_undone(&table, &[&id, &n], &[&sql]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oddly_named_tables_are_undone_on_postgres() {
    rows_of_oddly_named_tables_are_undone::<Postgres>('"').await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oddly_named_tables_are_undone_on_mysql() {
    rows_of_oddly_named_tables_are_undone::<MySql>('`').await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn oddly_named_tables_are_undone_on_sqlite() {
    rows_of_oddly_named_tables_are_undone::<Sqlite>('"').await;
}

/// Each row is restored in its own table, although the search path finds only one of the tables.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_one_name_in_two_schemas_are_undone() {
    let stage = Stage::<Postgres>::new(&[
        "CREATE SCHEMA other",
        "CREATE TABLE stock (id BIGINT PRIMARY KEY, n BIGINT)",
        "CREATE TABLE other.stock (id BIGINT PRIMARY KEY, n BIGINT)",
        "INSERT INTO stock VALUES (1, 1)",
        "INSERT INTO other.stock VALUES (1, 100)",
    ])
    .await;
    let columns = ["id", "n"];
    let before = [stage.dump("stock", &columns).await, stage.dump("other.stock", &columns).await];
    let global = stage.begin().await;
    let statements = [
        "UPDATE stock SET n = n + 1",
        "UPDATE other.stock SET n = n + 1",
        "DELETE FROM other.stock",
        "UPDATE public.stock SET n = n + 1",
    ];
    stage.branch(&global, &statements).await;
    stage.roll_back(global).await;
    let after = [stage.dump("stock", &columns).await, stage.dump("other.stock", &columns).await];
    assert_eq!(after, before);
}

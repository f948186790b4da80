//! The database server dies between prepare and commit, and is started again.

use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};
use sqlx::{MySql, Pool, Postgres};

use crate::child::PATIENCE;
use crate::commit_wire::Wired;
use crate::database::XaTestDatabase;
use crate::scene::{DEBIT, OTHER_DEBIT, Scene, branch};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_keeps_a_prepared_branch() {
    let server = start(ServerKind::Postgres).await;
    let pool = <Postgres as Wired>::open(server.url()).await;
    a_restarted_database_keeps_prepared_branches(server, pool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mariadb_keeps_a_prepared_branch() {
    let server = start(ServerKind::MariaDb).await;
    let pool = mariadb_pool(&server).await;
    a_restarted_database_keeps_prepared_branches(server, pool).await;
}

/// Creates a database, since the URL of a MySQL server names none.
pub(crate) async fn mariadb_pool(server: &DatabaseServer) -> Pool<MySql> {
    let pool = <MySql as Wired>::open(server.url()).await;
    sqlx::raw_sql("CREATE DATABASE bank").execute(&pool).await.unwrap();
    <MySql as Wired>::open(format!("{}/bank", server.url())).await
}

pub(crate) async fn start(kind: ServerKind) -> DatabaseServer {
    let start = move || DatabaseServer::start(kind, &ServerDirectory::new()?, &|| Ok(()));
    tokio::task::spawn_blocking(start).await.unwrap().unwrap()
}

async fn a_restarted_database_keeps_prepared_branches<DB: XaTestDatabase>(
    mut server: DatabaseServer,
    pool: Pool<DB>,
) {
    let scene = Scene::on(pool).await;
    let resource = scene.resource().await;
    let commits = scene.begin().await;
    branch(&resource, &commits, DEBIT).await.unwrap();
    let rolls_back = scene.begin().await;
    branch(&resource, &rolls_back, OTHER_DEBIT).await.unwrap();
    tokio::task::block_in_place(|| server.kill()).unwrap();
    // The global is decided while the database is down.
    let xid = commits.xid().clone();
    commits.commit().await.unwrap();
    let rolled_back = tokio::spawn(async move { rolls_back.rollback("test").await });
    tokio::task::block_in_place(|| server.restart()).unwrap();
    scene.until_committed(&xid).await;
    tokio::time::timeout(PATIENCE, rolled_back).await.unwrap().unwrap().unwrap();
    scene.assert_clean([990, 1000]).await;
}

/// A server without prepared transactions is refused when the resource is created.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_without_prepared_transactions_is_refused() {
    let mut server = start(ServerKind::Postgres).await;
    let pool = <Postgres as Wired>::open(server.url()).await;
    let scene = Scene::on(pool.clone()).await;
    let off = ["max_prepared_transactions=0"];
    tokio::task::block_in_place(|| server.restart_with(&off)).unwrap();
    let error = scene.handfast.xa(pool).node(&scene.node).await.unwrap_err();
    assert_eq!(error.code(), "HF-XA-PREPARED-DISABLED");
}

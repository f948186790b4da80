//! A MariaDB server whose sessions begin at READ COMMITTED, as guarded tables need it. The server
//! that all tests share has the default of its product.

use std::sync::{Mutex, PoisonError};

use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{AssertSqlSafe, Connection, Executor, MySql, MySqlConnection, Pool};

/// The server of this process.
static SERVER: Mutex<Option<DatabaseServer>> = Mutex::new(None);

fn url() -> String {
    let mut server = SERVER.lock().unwrap_or_else(PoisonError::into_inner);
    let started = server.get_or_insert_with(|| {
        let place = ServerDirectory::new().unwrap();
        let mut server = DatabaseServer::start(ServerKind::MariaDb, &place, &|| Ok(())).unwrap();
        server.restart_with(&["transaction-isolation=READ-COMMITTED"]).unwrap();
        server
    });
    started.url()
}

/// Makes a database there.
pub(crate) async fn database() -> Pool<MySql> {
    let url = tokio::task::spawn_blocking(url).await.unwrap();
    let name = super::fresh_name();
    let mut server = MySqlConnection::connect(&url).await.unwrap();
    let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4");
    server.execute(AssertSqlSafe(create)).await.unwrap();
    let pool = MySqlPoolOptions::new().max_connections(20);
    pool.connect(&format!("{url}/{name}")).await.unwrap()
}

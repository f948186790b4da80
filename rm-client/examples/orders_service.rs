//! A service in AT mode that only works in globals which others begin: it places orders.
//!
//! `cargo run -p handfast --example orders_service [COORDINATOR [LISTEN [FILE]]]`. The programs in
//! `examples/python` and `examples/typescript` call it with their XID in the header `TX_XID`.

#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use handfast::propagation::XidLayer;
use handfast::{AtResource, Handfast};
use sqlx::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut or = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (coordinator, listen) = (or("http://127.0.0.1:7091"), or("127.0.0.1:7303"));
    let file = SqliteConnectOptions::new().filename(or("orders.db")).create_if_missing(true);

    let handfast = Handfast::connect(coordinator).application("orders").await?;
    let pool = SqlitePool::connect_with(file).await?;
    handfast.migrate(&pool).await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)")
        .execute(&pool)
        .await?;
    // Outside of a global nothing is written: a caller that forgot the header is told so.
    let orders = handfast.at(pool).only_in_global().await?;
    let place = Router::new().route("/orders/{id}", post(place)).layer(XidLayer::required());
    let app = Router::new().route("/orders", get(count)).merge(place).with_state(orders);
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("orders at http://{}", listener.local_addr()?);
    axum::serve(listener, app).await?;
    Ok(())
}

async fn place(
    State(orders): State<AtResource<Sqlite>>,
    Path(id): Path<i64>,
) -> Result<StatusCode, (StatusCode, String)> {
    let insert = sqlx::query("INSERT INTO orders (id) VALUES (?)").bind(id);
    match insert.execute(&orders).await {
        Ok(_inserted) => Ok(StatusCode::CREATED),
        // The caller must learn of it, so that it rolls back.
        Err(error) => Err((StatusCode::CONFLICT, error.to_string())),
    }
}

async fn count(State(orders): State<AtResource<Sqlite>>) -> Result<String, (StatusCode, String)> {
    let counted = sqlx::query_scalar::<_, i64>("SELECT count(*) FROM orders").fetch_one(&orders);
    match counted.await {
        Ok(count) => Ok(format!("{{\"orders\": {count}}}")),
        Err(error) => Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
    }
}

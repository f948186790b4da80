//! A shop: an order goes into one database and takes its units from another, or nothing happens.

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::post;
use handfast::{AtResource, Handfast};
use sqlx::Sqlite;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool};

#[derive(Clone)]
struct Shop {
    handfast: Handfast,
    orders: AtResource<Sqlite>,
    stock: AtResource<Sqlite>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let handfast = Handfast::connect("http://127.0.0.1:7091").application("shop").await?;
    let orders = "CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, units INTEGER)";
    let stock = "CREATE TABLE IF NOT EXISTS stock (product INTEGER PRIMARY KEY, units INTEGER);
                 INSERT OR IGNORE INTO stock VALUES (7, 10)";
    let shop = Shop {
        orders: database(&handfast, "orders.db", orders).await?,
        stock: database(&handfast, "stock.db", stock).await?,
        handfast,
    };
    let app = Router::new().route("/orders/{id}/{product}/{units}", post(place_order));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8080").await?;
    axum::serve(listener, app.with_state(shop)).await?;
    Ok(())
}

/// Opens a database, makes its tables and Handfast's own, and lets it take part.
async fn database(
    handfast: &Handfast,
    file: &str,
    tables: &'static str,
) -> Result<AtResource<Sqlite>, Box<dyn std::error::Error>> {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await?;
    handfast.migrate(&pool).await?;
    sqlx::raw_sql(tables).execute(&pool).await?;
    Ok(handfast.at(pool).await?)
}

async fn place_order(
    State(shop): State<Shop>,
    Path((id, product, units)): Path<(i64, i64, i64)>,
) -> (StatusCode, String) {
    let order = shop.handfast.transaction("place-order").run(async |_tx| {
        let insert = "INSERT INTO orders (id, units) VALUES (?, ?)";
        sqlx::query(insert).bind(id).bind(units).execute(&shop.orders).await?;
        let take = "UPDATE stock SET units = units - ?1 WHERE product = ?2 AND units >= ?1";
        let taken = sqlx::query(take).bind(units).bind(product).execute(&shop.stock).await?;
        match taken.rows_affected() {
            1 => Ok(()),
            _ => Err(sqlx::Error::RowNotFound), // Too few: the INSERT is undone as well.
        }
    });
    match order.await {
        Ok(()) => (StatusCode::CREATED, "ordered\n".to_owned()),
        Err(error) => (StatusCode::CONFLICT, format!("{error}\n")),
    }
}

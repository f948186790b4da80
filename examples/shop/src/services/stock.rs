//! The stock service in ordinary SQL: deducts the lines of an order, all or nothing.

use anyhow::Result;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use handfast::Handfast;
use handfast::propagation::XidLayer;

use crate::database::{Pool, Resource, Sql, SqlMode, with_resource};
use crate::input::{OrderLine, Product};
use crate::with_pool;

use super::{BusinessRefusal, Service, ServiceFailure};

const TABLES: &[&str] = &["CREATE TABLE stock (\
     product_id BIGINT NOT NULL PRIMARY KEY, \
     name VARCHAR(100) NOT NULL, \
     units BIGINT NOT NULL)"];

const INSERT: Sql = Sql {
    numbered: "INSERT INTO stock (product_id, name, units) VALUES ($1, $2, $3)",
    plain: "INSERT INTO stock (product_id, name, units) VALUES (?, ?, ?)",
};

/// Deducts units of a product, if there are enough: quantity, product, quantity.
pub const DEDUCT: Sql = Sql {
    numbered: "UPDATE stock SET units = units - $1 WHERE product_id = $2 AND units >= $3",
    plain: "UPDATE stock SET units = units - ? WHERE product_id = ? AND units >= ?",
};

/// Makes and fills the service's table.
///
/// # Errors
/// Whatever the database says.
pub async fn fill(pool: &Pool, handfast: &Handfast, products: &[Product]) -> Result<()> {
    pool.make_tables(handfast, TABLES).await?;
    with_pool!(pool, |pool, text| {
        let mut local = pool.begin().await?;
        for product in products {
            sqlx::query(text(INSERT))
                .bind(product.product_id)
                .bind(&product.name)
                .bind(product.units)
                .execute(&mut *local)
                .await?;
        }
        local.commit().await?;
    });
    Ok(())
}

/// Starts the service.
pub(super) async fn start(
    pool: &Pool,
    handfast: Handfast,
    mode: SqlMode,
    node: &str,
) -> Result<Service> {
    let resource = pool.join(&handfast, mode, node).await?;
    let router = Router::new()
        .route("/deductions", post(deduct))
        // Requests that carry an XID are served within that global transaction.
        .layer(XidLayer::new())
        .with_state(resource);
    Service::start(router, handfast).await
}

async fn deduct(
    State(resource): State<Resource>,
    Json(lines): Json<Vec<OrderLine>>,
) -> Result<(), ServiceFailure> {
    with_resource!(&resource, |resource, text| {
        let work = resource.try_transaction(async |mut local| {
            for line in &lines {
                let changed = sqlx::query(text(DEDUCT))
                    .bind(line.quantity)
                    .bind(line.product_id)
                    .bind(line.quantity)
                    .execute(&mut *local)
                    .await?;
                if changed.rows_affected() == 0 {
                    return Err(ServiceFailure::from(BusinessRefusal::OutOfStock));
                }
            }
            Ok(())
        });
        work.await
    })
}

//! The account service in ordinary SQL: debits a customer with the funds.

use anyhow::Result;
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use handfast::Handfast;
use handfast::propagation::XidLayer;
use serde::{Deserialize, Serialize};

use crate::database::{Pool, Resource, Sql, SqlMode, with_resource};
use crate::input::Customer;
use crate::with_pool;

use super::{BusinessRefusal, Service, ServiceFailure};

const TABLES: &[&str] = &["CREATE TABLE account (\
     customer_id VARCHAR(16) NOT NULL PRIMARY KEY, \
     name VARCHAR(100) NOT NULL, \
     balance_cents BIGINT NOT NULL)"];

const INSERT: Sql = Sql {
    numbered: "INSERT INTO account (customer_id, name, balance_cents) VALUES ($1, $2, $3)",
    plain: "INSERT INTO account (customer_id, name, balance_cents) VALUES (?, ?, ?)",
};

/// Debits a customer with the funds: cents, customer, cents.
pub const DEBIT: Sql = Sql {
    numbered: "UPDATE account SET balance_cents = balance_cents - $1 \
               WHERE customer_id = $2 AND balance_cents >= $3",
    plain: "UPDATE account SET balance_cents = balance_cents - ? \
            WHERE customer_id = ? AND balance_cents >= ?",
};

/// A debit.
#[derive(Debug, Serialize, Deserialize)]
pub struct Debit {
    /// The customer.
    pub customer_id: String,
    /// The amount in cents.
    pub amount_cents: i64,
}

/// Makes and fills the service's table.
///
/// # Errors
/// Whatever the database says.
pub async fn fill(
    pool: &Pool,
    handfast: &Handfast,
    customers: &[Customer],
    balance_cents: i64,
) -> Result<()> {
    pool.make_tables(handfast, TABLES).await?;
    with_pool!(pool, |pool, text| {
        let mut local = pool.begin().await?;
        for customer in customers {
            sqlx::query(text(INSERT))
                .bind(&customer.customer_id)
                .bind(&customer.name)
                .bind(balance_cents)
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
        .route("/debits", post(debit))
        // Requests that carry an XID are served within that global transaction.
        .layer(XidLayer::new())
        .with_state(resource);
    Service::start(router, handfast).await
}

async fn debit(
    State(resource): State<Resource>,
    Json(debit): Json<Debit>,
) -> Result<(), ServiceFailure> {
    with_resource!(&resource, |resource, text| {
        let work = resource.try_transaction(async |mut local| {
            let changed = sqlx::query(text(DEBIT))
                .bind(debit.amount_cents)
                .bind(&debit.customer_id)
                .bind(debit.amount_cents)
                .execute(&mut *local)
                .await?;
            match changed.rows_affected() {
                0 => Err(ServiceFailure::from(BusinessRefusal::NoFunds)),
                _ => Ok(()),
            }
        });
        work.await
    })
}

//! The service over HTTP.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use handfast::propagation::XidLayer;
use handfast::{Handfast, TransactionError};
use handfast_sea_orm::{Cause, Orm, cause};
use sea_orm::sea_query::{Expr, ExprTrait};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ColumnTrait, DbErr, EntityTrait, QueryFilter, QueryOrder,
};

use crate::entity::{product, sale};

/// The service.
#[derive(Clone, Debug)]
pub struct Stock {
    /// The connection to the coordinator.
    pub handfast: Handfast,
    /// The database.
    pub database: Orm,
}

/// Why nothing was sold.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("too few units of product {0}")]
    TooFew(i32),
    #[error(transparent)]
    Database(#[from] DbErr),
}

/// Returns the routes: `POST /sales/{product}/{units}`, `GET /products`, `GET /sales`.
pub fn router(stock: Stock) -> Router {
    Router::new()
        .route("/sales/{product}/{units}", post(sell))
        .route("/products", get(products))
        .route("/sales", get(sales))
        .layer(XidLayer::new())
        .with_state(stock)
}

/// Sells units. Within the global of a caller this joins it; by itself it is one of its own.
async fn sell(State(stock): State<Stock>, Path((product, units)): Path<(i32, i32)>) -> Response {
    let selling = stock.handfast.transaction("sell");
    let sold = selling.run(async |_tx| take(&stock.database, product, units).await).await;
    match sold {
        Ok(sale) => (StatusCode::CREATED, Json(sale)).into_response(),
        Err(error) => (status(&error), format!("{error}\n")).into_response(),
    }
}

/// Takes the units and records the sale, in one local transaction. Many may want the same product,
/// so this is the form that holds nothing while it waits for another global.
async fn take(database: &Orm, product: i32, units: i32) -> Result<sale::Model, Failure> {
    database
        .try_repeatable_transaction(|local| {
            Box::pin(async move {
                let taken = product::Entity::update_many()
                    .col_expr(product::Column::Units, Expr::col(product::Column::Units).sub(units))
                    .filter(product::Column::Id.eq(product))
                    .filter(product::Column::Units.gte(units))
                    .exec(local)
                    .await?;
                if taken.rows_affected == 0 {
                    return Err(Failure::TooFew(product));
                }
                let sale = sale::ActiveModel {
                    product_id: Set(product),
                    units: Set(units),
                    ..Default::default()
                };
                Ok(sale.insert(local).await?)
            })
        })
        .await
}

async fn products(State(stock): State<Stock>) -> Result<Json<Vec<product::Model>>, StatusCode> {
    let products = product::Entity::find().order_by_asc(product::Column::Id);
    products.all(&stock.database).await.map(Json).map_err(|error| status_of(&error))
}

async fn sales(State(stock): State<Stock>) -> Result<Json<Vec<sale::Model>>, StatusCode> {
    let sales = sale::Entity::find().order_by_asc(sale::Column::Id);
    sales.all(&stock.database).await.map(Json).map_err(|error| status_of(&error))
}

fn status(error: &TransactionError<Failure>) -> StatusCode {
    match error {
        TransactionError::Application(Failure::Database(error)) => status_of(error),
        // Too few units; in a global of the service's own, which is rolled back.
        TransactionError::Application(_) | TransactionError::RolledBack { .. } => {
            StatusCode::CONFLICT
        }
        TransactionError::NotBegun(_) | _ => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// A refusal of Handfast with a code is for the caller's log; the rest is the database's.
fn status_of(error: &DbErr) -> StatusCode {
    match cause(error).map(Cause::code) {
        Some("HF-TC-ROW-LOCKED" | "HF-TC-DEADLOCK") => StatusCode::CONFLICT,
        Some(_) => StatusCode::SERVICE_UNAVAILABLE,
        None => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

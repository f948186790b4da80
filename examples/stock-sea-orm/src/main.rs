//! Runs the service.

use anyhow::Result;
use clap::Parser;
use handfast::Handfast;
use stock_sea_orm::{Stock, database, router};

/// A stock service with SeaORM.
#[derive(Parser)]
struct Arguments {
    /// The coordinator.
    #[arg(long, default_value = "http://127.0.0.1:7091")]
    coordinator: String,
    /// The database: sqlite:, postgres: or mysql:.
    #[arg(long, default_value = "sqlite:stock.db")]
    database: String,
    /// The address to serve at.
    #[arg(long, default_value = "127.0.0.1:8080")]
    listen: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let handfast = Handfast::connect(arguments.coordinator).application("stock").await?;
    let database = database::open(&handfast, &arguments.database).await?;
    database::furnish(&database).await?;
    let listener = tokio::net::TcpListener::bind(arguments.listen).await?;
    axum::serve(listener, router(Stock { handfast, database })).await?;
    Ok(())
}

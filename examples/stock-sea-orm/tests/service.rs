//! The service as callers meet it: by itself, and within a global of theirs, on each database.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result, ensure};
use handfast::Handfast;
use handfast::propagation::XidMiddleware;
use handfast_test_services::EmbeddedCoordinator;
use reqwest_middleware::{ClientBuilder, ClientWithMiddleware};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection, PgConnection};
use stock_sea_orm::{Stock, database, router};
use tokio::net::TcpListener;

/// A caller of the service, with a connection of its own to the coordinator.
struct Caller {
    handfast: Handfast,
    client: ClientWithMiddleware,
    service: SocketAddr,
}

impl Caller {
    async fn of_service_on(url: &str) -> Result<Self> {
        let endpoint = EmbeddedCoordinator::shared().endpoint();
        let handfast = Handfast::connect(&*endpoint).application("stock").await?;
        let database = database::open(&handfast, url).await?;
        database::furnish(&database).await?;
        database::furnish(&database).await.context("the tables may be there")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let service = listener.local_addr()?;
        let app = router(Stock { handfast, database });
        tokio::spawn(async move { axum::serve(listener, app).await });
        // Another test of this program may have set it.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = ClientBuilder::new(reqwest::Client::new()).with(XidMiddleware::new()).build();
        let handfast = Handfast::connect(endpoint).application("shop").await?;
        Ok(Self { handfast, client, service })
    }

    async fn sell(&self, product: i32, units: i32) -> Result<u16> {
        let url = format!("http://{}/sales/{product}/{units}", self.service);
        Ok(self.client.post(url).send().await?.status().as_u16())
    }

    async fn get(&self, what: &str) -> Result<Value> {
        let url = format!("http://{}/{what}", self.service);
        Ok(self.client.get(url).send().await?.json().await?)
    }

    async fn units(&self) -> Result<(Value, usize)> {
        let products = self.get("products").await?;
        let sales = self.get("sales").await?;
        let sales = sales.as_array().context("a list of sales")?.len();
        Ok((json!([products[0]["units"], products[1]["units"]]), sales))
    }
}

async fn sells(url: &str) -> Result<()> {
    let shop = Caller::of_service_on(url).await?;
    ensure!(shop.units().await? == (json!([10, 3]), 0));
    // By itself.
    ensure!(shop.sell(7, 4).await? == 201);
    ensure!(shop.sell(7, 7).await? == 409, "too few are left");
    ensure!(shop.units().await? == (json!([6, 3]), 1));
    // Within a global of the caller, which has a reason to take it back.
    let refused = shop.handfast.transaction("refused").run(async |_tx| {
        ensure!(shop.sell(7, 1).await? == 201);
        ensure!(shop.sell(8, 3).await? == 201);
        ensure!(shop.units().await? == (json!([5, 0]), 3));
        Err::<(), _>(anyhow::anyhow!("the card is declined"))
    });
    ensure!(refused.await.is_err());
    ensure!(shop.units().await? == (json!([6, 3]), 1), "all of it is undone");
    let kept = shop.handfast.transaction("kept").run(async |_tx| {
        ensure!(shop.sell(8, 2).await? == 201);
        anyhow::Ok(())
    });
    kept.await.map_err(|error| anyhow::anyhow!("{error}"))?;
    ensure!(shop.units().await? == (json!([6, 1]), 2));
    Ok(())
}

fn server(variable: &str) -> Result<String> {
    let hint = || format!("{variable} is not set: run the tests with `cargo xtask test`");
    std::env::var(variable).with_context(hint)
}

fn fresh_name() -> String {
    format!("stock_{}", std::process::id())
}

#[tokio::test(flavor = "multi_thread")]
async fn on_sqlite() -> Result<()> {
    let folder = tempfile::tempdir()?;
    sells(&format!("sqlite:{}", folder.path().join("stock.db").display())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn on_postgresql() -> Result<()> {
    let (url, name) = (server("HANDFAST_TEST_POSTGRES")?, fresh_name());
    let mut server = PgConnection::connect(&url).await?;
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut server).await?;
    let (base, _) = url.rsplit_once('/').context("the URL names a database")?;
    sells(&format!("{base}/{name}")).await
}

#[tokio::test(flavor = "multi_thread")]
async fn on_mariadb() -> Result<()> {
    let (url, name) = (server("HANDFAST_TEST_MYSQL")?, fresh_name());
    let mut server = MySqlConnection::connect(&url).await?;
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&mut server).await?;
    sells(&format!("{url}/{name}")).await
}

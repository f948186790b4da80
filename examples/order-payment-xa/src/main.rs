//! Real orders through global transactions by the databases' own two-phase commit: `XA` of MySQL
//! and MariaDB, `PREPARE TRANSACTION` of PostgreSQL.
//!
//! The services are those of `examples/shop`, in the same SQL as in AT mode; what they write is
//! invisible before the order is decided. At the end the run proves that nothing was lost and
//! that no database has a prepared transaction left.

use std::process::ExitCode;

use anyhow::{Result, bail};
use sqlx::{MySqlPool, PgPool, Row};

use handfast_example_shop::database::{DatabaseKind, Databases, Pool, SqlMode};
use handfast_example_shop::services::Services;
use handfast_example_shop::{Example, Leftover, Site};

/// Every service by two-phase commit.
struct OrderPaymentXa;

impl Example for OrderPaymentXa {
    const NAME: &'static str = "order-payment-xa";
    const ABOUT: &'static str = "Run orders through global transactions that PostgreSQL, MariaDB \
        or MySQL prepare and commit themselves, and prove that nothing was lost";

    fn accept(&self, kind: DatabaseKind) -> Result<()> {
        if kind == DatabaseKind::Sqlite {
            bail!(
                "SQLite has no two-phase commit: name a server with --database postgres://… or \
                 --database mysql://…, such as one that `cargo xtask services` prints; or run \
                 order-payment, whose AT mode works on SQLite"
            );
        }
        Ok(())
    }

    async fn start(&self, site: &Site<'_>) -> Result<Services> {
        Services::start_in_sql(site, SqlMode::Xa).await
    }

    async fn leftovers(&self, databases: &Databases) -> Result<Vec<Leftover>> {
        let run = databases.run();
        // The count covers all three databases: they are on one server.
        let count = match &databases.order {
            Pool::Postgres(pool) => prepared_in_postgres(pool, run).await?,
            Pool::MySql(pool) => prepared_in_mysql(pool, run).await?,
            Pool::Sqlite(_) => 0,
        };
        Ok(vec![Leftover { what: "prepared transactions left", count }])
    }
}

/// Returns the number of the run's prepared transactions. Their names contain the run.
async fn prepared_in_postgres(pool: &PgPool, run: &str) -> Result<i64> {
    let count = "SELECT COUNT(*) FROM pg_prepared_xacts WHERE strpos(gid, $1) > 0";
    Ok(sqlx::query_scalar(count).bind(run).fetch_one(pool).await?)
}

/// As [`prepared_in_postgres`].
async fn prepared_in_mysql(pool: &MySqlPool, run: &str) -> Result<i64> {
    let mut prepared = 0;
    for row in sqlx::raw_sql("XA RECOVER").fetch_all(pool).await? {
        let name: Vec<u8> = row.try_get("data")?;
        prepared += i64::from(String::from_utf8_lossy(&name).contains(run));
    }
    Ok(prepared)
}

#[tokio::main]
async fn main() -> ExitCode {
    handfast_example_shop::main(OrderPaymentXa).await
}

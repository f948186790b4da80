//! The tables: units in one row, or spread over several, and a row for each unit that was sold.

use anyhow::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use handfast_locks::fencing::ClaimDatabase;
use sqlx::{Database, MySql, Postgres, Sqlite};

use handfast_example_shop::database::{Pool, Sql};
use handfast_example_shop::dialect::Dialect;
use handfast_example_shop::with_pool;

pub(crate) const TABLES: &[&str] = &[
    "CREATE TABLE stock (segment BIGINT NOT NULL PRIMARY KEY, units BIGINT NOT NULL)",
    // No buyer buys twice.
    "CREATE TABLE sale (buyer BIGINT NOT NULL PRIMARY KEY, segment BIGINT NOT NULL)",
];

const INSERT_STOCK: Sql = Sql {
    numbered: "INSERT INTO stock (segment, units) VALUES ($1, $2)",
    plain: "INSERT INTO stock (segment, units) VALUES (?, ?)",
};

/// The units of one segment.
pub(crate) const UNITS: Sql = Sql {
    numbered: "SELECT units FROM stock WHERE segment = $1",
    plain: "SELECT units FROM stock WHERE segment = ?",
};

/// Units, segment: the value that was read decides what is written.
pub(crate) const SET_UNITS: Sql = Sql {
    numbered: "UPDATE stock SET units = $1 WHERE segment = $2",
    plain: "UPDATE stock SET units = ? WHERE segment = ?",
};

/// Segment, twice one: the database decides.
pub(crate) const TAKE_ONE: Sql = Sql {
    numbered: "UPDATE stock SET units = units - $1 WHERE segment = $2 AND units >= $3",
    plain: "UPDATE stock SET units = units - ? WHERE segment = ? AND units >= ?",
};

/// Segment: locks the row if nothing is left in it.
pub(crate) const NONE_LEFT: Sql = Sql {
    numbered: "UPDATE stock SET units = units WHERE segment = $1 AND units = $2",
    plain: "UPDATE stock SET units = units WHERE segment = ? AND units = ?",
};

/// Buyer, segment.
pub(crate) const INSERT_SALE: Sql = Sql {
    numbered: "INSERT INTO sale (buyer, segment) VALUES ($1, $2)",
    plain: "INSERT INTO sale (buyer, segment) VALUES (?, ?)",
};

/// The stock to sell.
#[derive(Debug, Clone)]
pub(crate) struct Stock {
    pub(crate) pool: Pool,
    pub(crate) units: u32,
    pub(crate) segments: u32,
}

impl Stock {
    /// Fills the tables again.
    pub(crate) async fn fill(&self) -> Result<()> {
        with_pool!(&self.pool, |pool, text| {
            let mut local = pool.begin().await?;
            sqlx::query("DELETE FROM stock").execute(&mut *local).await?;
            sqlx::query("DELETE FROM sale").execute(&mut *local).await?;
            for segment in 0..self.segments {
                sqlx::query(text(INSERT_STOCK))
                    .bind(i64::from(segment))
                    .bind(i64::from(self.share(segment)))
                    .execute(&mut *local)
                    .await?;
            }
            local.commit().await?;
        });
        Ok(())
    }

    /// Returns the units by segment, read without a lock.
    pub(crate) async fn look(&self) -> Result<Vec<i64>> {
        let rows = self.pool.numbers_by_id("SELECT segment, units FROM stock ORDER BY segment");
        Ok(rows.await?.into_iter().map(|(_, units)| units).collect())
    }

    /// Returns the buyers that have bought, each with its segment.
    pub(crate) async fn sales(&self) -> Result<Vec<(i64, i64)>> {
        self.pool.numbers_by_id("SELECT buyer, segment FROM sale").await
    }

    /// Returns the units of a segment at the beginning: as many as every other, and one of the
    /// rest.
    pub(crate) fn share(&self, segment: u32) -> u32 {
        self.units / self.segments + u32::from(segment < self.units % self.segments)
    }
}

/// A database product in which a lock can be claimed and a number read.
pub(crate) trait Product: Dialect + ClaimDatabase {
    /// Returns the number that a query gives.
    fn read_number<'c>(
        connection: &'c mut <Self as Database>::Connection,
        sql: Sql,
        argument: i64,
    ) -> BoxFuture<'c, Result<i64, sqlx::Error>>;
}

macro_rules! impl_product {
    ($database:ty, $way:ident) => {
        impl Product for $database {
            fn read_number<'c>(
                connection: &'c mut <Self as Database>::Connection,
                sql: Sql,
                argument: i64,
            ) -> BoxFuture<'c, Result<i64, sqlx::Error>> {
                sqlx::query_scalar(sql.$way).bind(argument).fetch_one(connection).boxed()
            }
        }
    };
}

impl_product!(Postgres, numbered);
impl_product!(MySql, plain);
impl_product!(Sqlite, numbered);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_unit_is_in_some_segment() {
        let pool = sqlx::SqlitePool::connect("sqlite::memory:").await.unwrap();
        for (units, segments) in [(1_000, 16), (3, 16), (0, 2), (17, 1)] {
            let stock = Stock { pool: Pool::Sqlite(pool.clone()), units, segments };
            assert_eq!((0..segments).map(|segment| stock.share(segment)).sum::<u32>(), units);
        }
    }
}

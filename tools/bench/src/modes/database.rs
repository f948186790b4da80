//! The statements of the action, as each mode executes them.

use anyhow::Result;
use futures::FutureExt;
use futures::future::BoxFuture;
use handfast::{AtTransaction, Handfast, XaDatabase, XaResource};
use sqlx::{MySql, Pool, Postgres, Sqlite};

use crate::at::BenchDatabase;

type Done<'q> = BoxFuture<'q, Result<(), sqlx::Error>>;

/// The column that a statement changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    /// The value that every reader sees.
    Count,
    /// The part that is held for transactions without a decision.
    Held,
}

/// A branch in two-phase commit that changes one row.
pub(crate) trait XaBranch: Send + Sync {
    fn change(&self, item: i64, by: i64) -> Done<'_>;
}

/// A database product, in all modes that it supports.
pub(crate) trait ModesDatabase: BenchDatabase {
    /// Whether the product has two-phase commit.
    const HAS_XA: bool;

    /// Changes a column of a row in a local transaction.
    fn change(connection: &mut Self::Connection, column: Column, item: i64, by: i64) -> Done<'_>;
    /// Changes the count of a row in a branch.
    fn change_in_branch<'q>(local: &'q mut AtTransaction<'_, Self>, item: i64, by: i64)
    -> Done<'q>;
    /// Returns the database for two-phase commit, if it has that.
    fn xa(
        handfast: &Handfast,
        pool: Pool<Self>,
        node: String,
    ) -> BoxFuture<'_, Result<Option<Box<dyn XaBranch>>>>;
}

macro_rules! impl_modes {
    (
        $database:ty, $count:expr, $held:expr, $has_xa:expr,
        |$handfast:ident, $pool:ident, $node:ident| $xa:expr
    ) => {
        impl ModesDatabase for $database {
            const HAS_XA: bool = $has_xa;

            fn change(
                connection: &mut Self::Connection,
                column: Column,
                item: i64,
                by: i64,
            ) -> Done<'_> {
                let text = match column {
                    Column::Count => $count,
                    Column::Held => $held,
                };
                let query = sqlx::query(text).bind(by).bind(item);
                async move { query.execute(connection).await.map(drop) }.boxed()
            }

            fn change_in_branch<'q>(
                local: &'q mut AtTransaction<'_, Self>,
                item: i64,
                by: i64,
            ) -> Done<'q> {
                let query = sqlx::query($count).bind(by).bind(item);
                async move { query.execute(local).await.map(drop) }.boxed()
            }

            fn xa(
                $handfast: &Handfast,
                $pool: Pool<Self>,
                $node: String,
            ) -> BoxFuture<'_, Result<Option<Box<dyn XaBranch>>>> {
                async move { Ok($xa) }.boxed()
            }
        }
    };
}

macro_rules! impl_xa_branch {
    ($database:ty, $count:expr) => {
        impl XaBranch for XaResource<$database> {
            fn change(&self, item: i64, by: i64) -> Done<'_> {
                async move {
                    let mut local = self.begin().await?;
                    sqlx::query($count).bind(by).bind(item).execute(&mut local).await?;
                    local.commit().await
                }
                .boxed()
            }
        }
    };
}

const COUNT: &str = "UPDATE item SET cnt = cnt + ? WHERE id = ?";
const HELD: &str = "UPDATE item SET held = held + ? WHERE id = ?";
const COUNT_NUMBERED: &str = "UPDATE item SET cnt = cnt + $1 WHERE id = $2";
const HELD_NUMBERED: &str = "UPDATE item SET held = held + $1 WHERE id = $2";

impl_modes!(MySql, COUNT, HELD, true, |handfast, pool, node| {
    Some(branch(handfast, pool, node).await?)
});
impl_modes!(Postgres, COUNT_NUMBERED, HELD_NUMBERED, true, |handfast, pool, node| {
    Some(branch(handfast, pool, node).await?)
});
impl_modes!(Sqlite, COUNT, HELD, false, |_handfast, _pool, _node| None);

impl_xa_branch!(MySql, COUNT);
impl_xa_branch!(Postgres, COUNT_NUMBERED);

async fn branch<DB: XaDatabase>(
    handfast: &Handfast,
    pool: Pool<DB>,
    node: String,
) -> Result<Box<dyn XaBranch>>
where
    XaResource<DB>: XaBranch + 'static,
{
    Ok(Box::new(handfast.xa(pool).node(node).await?))
}

//! `sqlx::Executor` for two-phase commit: one concrete impl per database that has it.
//!
//! A query is handed on and streams, once it is known not to end the transaction.

use std::sync::Arc;

use super::database::XaDatabase;
use super::pooled_connection::PooledConnection;
use super::resource::XaResource;
use super::transaction::{XaTransaction, effect_of};
use crate::at::BoundQuery;
use crate::at::database::Steps;
use crate::context;
use crate::executor::Route;
#[cfg(any(feature = "mysql", feature = "postgres"))]
use crate::executor::{impl_executor, impl_executor_of_guard};

impl<DB: XaDatabase> XaTransaction<'_, DB> {
    /// Hands a query on, unless it would end the transaction.
    fn classify(&mut self, query: &BoundQuery<DB>) -> Result<Route<()>, sqlx::Error> {
        self.admit(query)?;
        Ok(Route::Plain)
    }

    /// Runs a query to its end.
    async fn run(&mut self, query: BoundQuery<DB>, (): ()) -> Result<Steps<DB>, sqlx::Error> {
        DB::steps(&mut self.session, query).await
    }

    /// Splits off the session. A failure of a statement leaves nothing to take note of.
    fn split(&mut self) -> (&mut PooledConnection<DB>, impl FnMut(&sqlx::Error)) {
        (&mut self.session, |_: &sqlx::Error| ())
    }

    fn connection(&mut self) -> &mut DB::Connection {
        &mut self.session
    }
}

impl<DB: XaDatabase> XaResource<DB> {
    /// Makes a query inside of a global a branch of its own.
    fn classify(&self, _query: &BoundQuery<DB>) -> Result<Route<()>, sqlx::Error> {
        Ok(if context::current().is_none() { Route::Plain } else { Route::Planned(()) })
    }

    /// Runs one statement as a branch of its own.
    async fn run_alone(&self, query: BoundQuery<DB>, (): ()) -> Result<Steps<DB>, sqlx::Error> {
        // Before the branch begins: left without an end, it would close its session.
        let effect = effect_of(&query)?;
        let shared = Arc::clone(&self.shared);
        let mut local = XaTransaction::begin(shared, context::current()).await?;
        local.note(effect);
        match DB::steps(&mut local.session, query).await {
            Ok(steps) => {
                local.commit().await?;
                Ok(steps)
            }
            Err(error) => {
                // The first error says what happened; the branch is gone in any case.
                let _ = local.rollback().await;
                Err(error)
            }
        }
    }
}

#[cfg(feature = "postgres")]
impl_executor!(XaTransaction, XaResource, sqlx::Postgres);
#[cfg(feature = "postgres")]
impl_executor_of_guard!(XaTransaction, sqlx::Postgres);
#[cfg(feature = "mysql")]
impl_executor!(XaTransaction, XaResource, sqlx::MySql);
#[cfg(feature = "mysql")]
impl_executor_of_guard!(XaTransaction, sqlx::MySql);

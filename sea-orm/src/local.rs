//! Local transactions of Handfast, of either mode and any of the databases, as one type.
//!
//! `sqlx::Executor` is implemented for concrete databases alone, so the implementations here come
//! from a macro, one for each pair of mode and database.

use futures::future::BoxFuture;
use handfast::Xid;
use handfast::outbox::{Event, OutboxError};
use sea_orm::{ExecResult, QueryResult, Statement};

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use crate::sent;
use crate::sent::{Answer, Rows};

/// A local transaction that is open.
pub trait Local: Send {
    /// The global that it is a branch of.
    fn xid(&self) -> Option<&Xid>;

    /// Returns the rows of a statement as they arrive.
    fn rows(&mut self, statement: Statement) -> Rows<'_>;

    /// Returns the first row of a statement.
    fn row(&mut self, statement: Statement) -> Answer<'_, Option<QueryResult>>;

    /// Runs a statement to its end.
    fn execute(&mut self, statement: Statement) -> Answer<'_, ExecResult>;

    /// Runs a text that is not prepared.
    fn execute_text(&mut self, text: String) -> Answer<'_, ExecResult>;

    /// Emits an event.
    fn emit(&mut self, event: Event) -> BoxFuture<'_, Result<(), OutboxError>>;
}

/// A local transaction that can also be ended.
pub trait OwnedLocal: Local {
    /// Commits it: phase one, if it is a branch.
    fn commit(self: Box<Self>) -> Answer<'static, ()>;

    /// Rolls it back.
    fn roll_back(self: Box<Self>) -> Answer<'static, ()>;
}

/// Implements the first trait for one type that a local transaction has.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
macro_rules! impl_local_as {
    ($own:ty, $transaction:ty) => {
        impl Local for $own {
            fn xid(&self) -> Option<&Xid> {
                <$transaction>::xid(self)
            }

            fn rows(&mut self, statement: Statement) -> Rows<'_> {
                let local: &mut $transaction = self;
                sent::rows(local, statement)
            }

            fn row(&mut self, statement: Statement) -> Answer<'_, Option<QueryResult>> {
                let local: &mut $transaction = self;
                sent::row(local, statement)
            }

            fn execute(&mut self, statement: Statement) -> Answer<'_, ExecResult> {
                let local: &mut $transaction = self;
                sent::execute(local, statement)
            }

            fn execute_text(&mut self, text: String) -> Answer<'_, ExecResult> {
                let local: &mut $transaction = self;
                sent::execute_text(local, text)
            }

            fn emit(&mut self, event: Event) -> BoxFuture<'_, Result<(), OutboxError>> {
                Box::pin(async move { <$transaction>::emit(self, &event).await })
            }
        }
    };
}

/// Implements both traits for the local transactions of one database.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
macro_rules! impl_local {
    ($transaction:ident, $db:ty) => {
        impl_local_as!(handfast::$transaction<'static, $db>, handfast::$transaction<'static, $db>);
        // As closures that may be repeated get it.
        impl_local_as!(
            handfast::TransactionGuard<handfast::$transaction<'static, $db>>,
            handfast::$transaction<'static, $db>
        );

        impl OwnedLocal for handfast::$transaction<'static, $db> {
            fn commit(self: Box<Self>) -> Answer<'static, ()> {
                Box::pin((*self).commit())
            }

            fn roll_back(self: Box<Self>) -> Answer<'static, ()> {
                Box::pin((*self).rollback())
            }
        }
    };
}

#[cfg(feature = "mysql")]
impl_local!(AtTransaction, sqlx::MySql);
#[cfg(feature = "postgres")]
impl_local!(AtTransaction, sqlx::Postgres);
#[cfg(feature = "sqlite")]
impl_local!(AtTransaction, sqlx::Sqlite);
#[cfg(feature = "mysql")]
impl_local!(XaTransaction, sqlx::MySql);
#[cfg(feature = "postgres")]
impl_local!(XaTransaction, sqlx::Postgres);

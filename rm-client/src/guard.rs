//! The local transaction that a closure works in, handed to it by value.
//!
//! A closure gets no `&mut`: the compiler cannot prove of an async closure with a borrowed argument
//! that its future may move between threads, as handlers of web servers and spawned tasks must. An
//! argument by value leaves nothing to prove
//! (`docs/decisions/0031-closures-get-their-transaction-by-value.md`).

use std::fmt;
use std::ops::{Deref, DerefMut};

use tokio::sync::oneshot;

/// The code of every error that says that a guard outlived its closure.
pub(crate) const KEPT: &str = "HF-TM-KEPT";

/// The local transaction that a closure works in.
///
/// It dereferences to the transaction: `.execute(&mut *local)`, as with sqlx's own `Transaction`.
/// When the guard is dropped, at the end of the closure, the transaction goes back to the call that
/// runs the closure, which commits it or rolls it back. A closure cannot end it itself.
///
/// ```no_run
/// # async fn example(stock: handfast::AtResource<sqlx::Sqlite>) -> Result<(), sqlx::Error> {
/// stock
///     .transaction(async |mut local| {
///         sqlx::query("UPDATE stock SET n = n - 1 WHERE id = 7").execute(&mut *local).await?;
///         sqlx::query("INSERT INTO sale (product_id) VALUES (7)").execute(&mut *local).await?;
///         Ok(())
///     })
///     .await
/// # }
/// ```
pub struct TransactionGuard<T> {
    transaction: Option<T>,
    back: Option<oneshot::Sender<T>>,
}

/// The way back of a transaction that is with its closure.
pub(crate) struct WayBack<T>(oneshot::Receiver<T>);

impl<T> TransactionGuard<T> {
    pub(crate) fn lend(transaction: T) -> (Self, WayBack<T>) {
        let (back, way_back) = oneshot::channel();
        (Self { transaction: Some(transaction), back: Some(back) }, WayBack(way_back))
    }
}

impl<T> WayBack<T> {
    /// Returns the transaction, or `None` if the guard outlives its closure.
    pub(crate) fn taken(mut self) -> Option<T> {
        self.0.try_recv().ok()
    }
}

impl<T> Deref for TransactionGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.transaction.as_ref().expect("a guard has its transaction until it is dropped")
    }
}

impl<T> DerefMut for TransactionGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.transaction.as_mut().expect("a guard has its transaction until it is dropped")
    }
}

impl<T> Drop for TransactionGuard<T> {
    fn drop(&mut self) {
        if let (Some(transaction), Some(back)) = (self.transaction.take(), self.back.take()) {
            // If the call is gone, its future was dropped: so is the transaction, which rolls back.
            drop(back.send(transaction));
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for TransactionGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TransactionGuard").field(&self.transaction).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_comes_back_from_its_closure_or_ends_with_the_guard() {
        let (mut guard, back) = TransactionGuard::lend(vec![1]);
        guard.push(2);
        drop(guard);
        assert_eq!(back.taken(), Some(vec![1, 2]));

        let (kept, back) = TransactionGuard::lend(());
        assert_eq!(back.taken(), None);
        drop(kept);
    }
}

//! A fence in a local transaction: the caller's own, or one made for the operation.

use handfast_rm_core::fence::{Operation, Pass};
use sqlx::{Pool, Transaction};

use super::error::FenceError;
use super::table;
use super::{Fence, Fenced};
use crate::at::{AtDatabase, commit};
use crate::guard::TransactionGuard;

/// How often a local transaction may be ended in favour of others before the error goes to the
/// caller (BOUNDED). The transaction in the way makes progress meanwhile, so a few are enough.
const REPEATS_MAX: u32 = 20;

/// The largest data that a branch may leave in its fence: it is there for names and numbers.
const CONTEXT_BYTES_MAX: usize = 64 << 10;

impl Fence {
    /// Asks the fence, in the caller's own local transaction, whether an operation may do its work.
    /// **It must be the first statement of the local transaction**: then it holds nothing while it
    /// waits for another operation of the branch, and what it reads afterwards is not older than
    /// the answer of the fence.
    ///
    /// After `Ok` the caller does the work, if it is [`Pass::Run`], and commits. After an error the
    /// caller rolls back, also after one of the work: on MySQL a deadlock ends the local
    /// transaction, and the COMMIT of a caller that goes on succeeds without the fence.
    ///
    /// ```
    /// use handfast::fence::{Fence, FenceError, Operation, Pass};
    ///
    /// async fn cancel(pool: &sqlx::SqlitePool, fence: &Fence) -> Result<(), FenceError> {
    ///     let mut local = pool.begin().await?;
    ///     if fence.enter(&mut local, Operation::Cancel).await? == Pass::Run {
    ///         sqlx::query("UPDATE account SET held = held - 30").execute(&mut *local).await?;
    ///     }
    ///     local.commit().await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// The refusals [`Barred`](FenceError::Barred), [`NotTried`](FenceError::NotTried) and
    /// [`Contradicted`](FenceError::Contradicted); [`Conflict`](FenceError::Conflict), after which
    /// the local transaction is to be repeated; [`TableMissing`](FenceError::TableMissing); or what
    /// the database says.
    pub async fn enter<DB: AtDatabase>(
        &self,
        local: &mut Transaction<'_, DB>,
        operation: Operation,
    ) -> Result<Pass, FenceError> {
        let found = table::advance::<DB>(local, self, operation).await;
        self.pass(found.map_err(table::explain::<DB>)?, operation)
    }

    /// Leaves data for the operations that come after: a try for its confirm or cancel, such as the
    /// number of a reservation. It is kept in the fence's row, so that it is there if and only if
    /// the try is; data left before is replaced.
    ///
    /// # Errors
    /// [`FenceError::ContextTooLarge`] above 64 KiB, [`FenceError::NotTried`] if the branch has not
    /// entered, or what the database says.
    pub async fn leave<DB: AtDatabase>(
        &self,
        local: &mut Transaction<'_, DB>,
        context: &[u8],
    ) -> Result<(), FenceError> {
        let bytes = context.len();
        if bytes > CONTEXT_BYTES_MAX {
            return Err(FenceError::ContextTooLarge { bytes, bytes_max: CONTEXT_BYTES_MAX });
        }
        let is_there = table::leave::<DB>(local, self, context).await;
        if is_there.map_err(table::explain::<DB>)? {
            Ok(())
        } else {
            Err(FenceError::NotTried { fence: self.clone() })
        }
    }

    /// Returns the data that an earlier operation has [left](Self::leave), if any.
    ///
    /// # Errors
    /// The database's error.
    pub async fn left<DB: AtDatabase>(
        &self,
        local: &mut Transaction<'_, DB>,
    ) -> Result<Option<Vec<u8>>, FenceError> {
        table::left::<DB>(local, self).await.map_err(table::explain::<DB>)
    }

    /// Runs an operation in a local transaction of its own: begins, asks the fence, does the work
    /// if it may, commits. What the database ends in favour of others before the work or at COMMIT
    /// is repeated, so **the closure may run several times**, each time in a fresh local
    /// transaction.
    ///
    /// ```
    /// use handfast::fence::{Fence, FenceError, Fenced, Operation};
    ///
    /// async fn confirm(pool: &sqlx::SqlitePool, fence: &Fence) -> Result<(), FenceError> {
    ///     let ended = fence
    ///         .run(pool, Operation::Confirm, async |mut local| {
    ///             let debit = "UPDATE account SET balance = balance - 30, held = held - 30";
    ///             sqlx::query(debit).execute(&mut **local).await?;
    ///             Ok::<_, FenceError>(())
    ///         })
    ///         .await?;
    ///     match ended {
    ///         Fenced::Ran(()) | Fenced::AlreadyDone | Fenced::Empty => Ok(()),
    ///     }
    /// }
    /// ```
    ///
    /// The closure gets sqlx's local transaction in a [`TransactionGuard`].
    ///
    /// # Errors
    /// The closure's own, after which the local transaction is rolled back;
    /// [`EndedEarly`](FenceError::EndedEarly); or as [`enter`](Self::enter).
    pub async fn run<DB, T, E, F, R>(
        &self,
        pool: &Pool<DB>,
        operation: Operation,
        mut work: F,
    ) -> Result<Fenced<T>, E>
    where
        DB: AtDatabase,
        F: FnMut(TransactionGuard<Transaction<'static, DB>>) -> R,
        R: Future<Output = Result<T, E>>,
        E: From<FenceError>,
    {
        let mut repeats = 0;
        loop {
            match self.attempt(pool, operation, &mut work).await {
                Err(Stopped::Fence(FenceError::Conflict { .. })) if repeats < REPEATS_MAX => {
                    repeats += 1;
                }
                Err(Stopped::Fence(error)) => return Err(error.into()),
                Err(Stopped::Work(error)) => return Err(error),
                Ok(ended) => return Ok(ended),
            }
        }
    }

    /// Runs one local transaction. If anything in it fails, dropping it rolls it back.
    async fn attempt<DB, T, E, F, R>(
        &self,
        pool: &Pool<DB>,
        operation: Operation,
        work: &mut F,
    ) -> Result<Fenced<T>, Stopped<E>>
    where
        DB: AtDatabase,
        F: FnMut(TransactionGuard<Transaction<'static, DB>>) -> R,
        R: Future<Output = Result<T, E>>,
    {
        let mut local = DB::begin_marked(pool).await.map_err(Stopped::database)?;
        let ended = match self.enter(&mut local, operation).await.map_err(Stopped::Fence)? {
            Pass::Run => {
                let (guard, back) = TransactionGuard::lend(local);
                let ended = Box::pin(work(guard)).await.map_err(Stopped::Work)?;
                local = back.taken().ok_or(Stopped::Fence(FenceError::Kept))?;
                Fenced::Ran(ended)
            }
            Pass::AlreadyDone => Fenced::AlreadyDone,
            Pass::Empty => Fenced::Empty,
        };
        commit(local).await.map_err(|error| Stopped::Fence(error.into()))?;
        Ok(ended)
    }
}

/// The end of an attempt.
enum Stopped<E> {
    Fence(FenceError),
    Work(E),
}

impl<E> Stopped<E> {
    fn database(error: sqlx::Error) -> Self {
        Self::Fence(error.into())
    }
}

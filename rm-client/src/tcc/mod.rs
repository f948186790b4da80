//! TCC mode: a branch is an action that is tried at once and confirmed or cancelled later.
//!
//! ```text
//! RM                                                   TC
//!  │ RegisterBranch(resource, input) ────────────────▶ │ branch and input are durable
//!  │ BEGIN, fence, try_, COMMIT                        │
//!  ...                                                 │
//!  │ ◀─────────── phase two: commit, roll back; input  │ to any process that has the resource
//!  │ BEGIN, fence, confirm or cancel, COMMIT           │
//! ```
//!
//! Registration comes before the try, so that the coordinator knows the branch whatever the try
//! does. Each operation runs in one local transaction with the [fence](crate::fence), so that it
//! takes effect once. The coordinator decides how often and when phase two is tried.

mod error;
mod over_http;
mod phase_two;
mod resource;

use std::future::Future;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Transaction;

pub use error::TccError;
pub use over_http::{HttpTcc, HttpTryError};
pub use resource::TccResource;

use crate::at::AtDatabase;
use crate::fence::{Fence, FenceError, Operation};
use crate::xid::Xid;

/// An action in three operations. [`Handfast::tcc`](crate::Handfast::tcc) registers it as a
/// resource.
///
/// An operation works in the local transaction that is passed to it, and neither commits it nor
/// rolls it back. It may be called again if it failed or its COMMIT had no answer. Its work in the
/// local transaction takes effect once; anything else that it does must be safe to repeat. A cancel
/// is called only after a try that took effect.
///
/// ```
/// use handfast::{Tcc, TccBranch};
/// use serde::{Deserialize, Serialize};
/// use sqlx::{Sqlite, Transaction};
///
/// struct DebitPoints;
///
/// #[derive(Serialize, Deserialize)]
/// struct Debit {
///     customer: i64,
///     points: i64,
/// }
///
/// impl Tcc for DebitPoints {
///     type Database = Sqlite;
///     type Input = Debit;
///     type Error = sqlx::Error;
///
///     async fn try_(
///         &self,
///         debit: &Debit,
///         _: &TccBranch,
///         local: &mut Transaction<'_, Sqlite>,
///     ) -> Result<(), sqlx::Error> {
///         let hold = "UPDATE points SET free = free - ?, held = held + ? WHERE customer = ?";
///         let query = sqlx::query(hold).bind(debit.points).bind(debit.points);
///         query.bind(debit.customer).execute(&mut **local).await?;
///         Ok(())
///     }
///
///     async fn confirm(
///         &self,
///         debit: &Debit,
///         _: &TccBranch,
///         local: &mut Transaction<'_, Sqlite>,
///     ) -> Result<(), sqlx::Error> {
///         let take = "UPDATE points SET held = held - ? WHERE customer = ?";
///         sqlx::query(take).bind(debit.points).bind(debit.customer).execute(&mut **local).await?;
///         Ok(())
///     }
///
///     async fn cancel(
///         &self,
///         debit: &Debit,
///         _: &TccBranch,
///         local: &mut Transaction<'_, Sqlite>,
///     ) -> Result<(), sqlx::Error> {
///         let back = "UPDATE points SET free = free + ?, held = held - ? WHERE customer = ?";
///         let query = sqlx::query(back).bind(debit.points).bind(debit.points);
///         query.bind(debit.customer).execute(&mut **local).await?;
///         Ok(())
///     }
/// }
/// ```
pub trait Tcc: Send + Sync + 'static {
    /// The database of the action's data: `sqlx::Postgres`, `sqlx::MySql` or `sqlx::Sqlite`.
    type Database: AtDatabase;
    /// The input, the same for all three operations. The coordinator stores it as JSON, so the next
    /// version of the service must be able to read it.
    type Input: Serialize + DeserializeOwned + Send + Sync;
    /// The error of an operation.
    type Error: std::error::Error + Send + Sync + 'static;

    /// How long a confirm or cancel may take, 20 seconds unless set. After that it is cut off, its
    /// local transaction is rolled back, and it is called again. Too short: slow ones never end.
    /// Too long: one that hangs keeps others waiting.
    const TIME_LIMIT: Duration = Duration::from_secs(20);

    /// Checks that the action is possible, and reserves what it needs. An error rolls the local
    /// transaction back and is returned to the caller. Then nothing is confirmed or cancelled.
    fn try_(
        &self,
        input: &Self::Input,
        branch: &TccBranch,
        local: &mut Transaction<'_, Self::Database>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Makes the reservation final. It must succeed in the end: it is called until it does.
    fn confirm(
        &self,
        input: &Self::Input,
        branch: &TccBranch,
        local: &mut Transaction<'_, Self::Database>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Releases the reservation. It must succeed in the end: it is called until it does, or until
    /// its error is [hopeless](Self::is_hopeless).
    fn cancel(
        &self,
        input: &Self::Input,
        branch: &TccBranch,
        local: &mut Transaction<'_, Self::Database>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Returns whether an error of the cancel would come again however often it is called. The
    /// branch and its global then wait for an operator. Unless overridden, no error is hopeless.
    ///
    /// Errors of a confirm are not passed to this method: the try has promised the confirm, which
    /// is called until it succeeds.
    fn is_hopeless(&self, error: &Self::Error) -> bool {
        let _ = error;
        false
    }
}

/// The branch that an operation belongs to.
#[derive(Clone, Debug)]
pub struct TccBranch {
    xid: Xid,
    id: u64,
    fence: Fence,
}

impl TccBranch {
    fn new(xid: Xid, id: u64, resource: &str) -> Result<Self, FenceError> {
        let fence = Fence::new(&xid, id, resource)?;
        Ok(Self { xid, id, fence })
    }

    /// The global.
    #[must_use]
    pub fn xid(&self) -> &Xid {
        &self.xid
    }

    /// Returns the branch's id within the global. Together with the XID it names one action.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Stores data for the confirm or cancel, such as the number of a reservation that the try
    /// made. The data lasts if and only if the try takes effect. At most 64 KiB.
    ///
    /// # Errors
    /// [`FenceError::ContextTooLarge`], or the error of the database.
    pub async fn leave<DB: AtDatabase>(
        &self,
        local: &mut Transaction<'_, DB>,
        data: &[u8],
    ) -> Result<(), FenceError> {
        self.fence.leave(local, data).await
    }

    /// Returns the data that the try has [stored](Self::leave), if any.
    ///
    /// # Errors
    /// The error of the database.
    pub async fn left<DB: AtDatabase>(
        &self,
        local: &mut Transaction<'_, DB>,
    ) -> Result<Option<Vec<u8>>, FenceError> {
        self.fence.left(local).await
    }
}

/// Calls the method of the action that belongs to an operation.
async fn operate<T: Tcc>(
    action: &T,
    operation: Operation,
    input: &T::Input,
    branch: &TccBranch,
    local: &mut Transaction<'_, T::Database>,
) -> Result<(), T::Error> {
    match operation {
        Operation::Try | Operation::Action => action.try_(input, branch, local).await,
        Operation::Confirm => action.confirm(input, branch, local).await,
        Operation::Cancel | Operation::Compensation => action.cancel(input, branch, local).await,
    }
}

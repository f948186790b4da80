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
//! Registration comes before the try: whatever the try does, the coordinator knows of it. Each
//! operation runs in one local transaction with the [fence](crate::fence), so that it takes effect
//! once. How often phase two is tried, and when, is the coordinator's business.

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

/// An action in three operations. Made a resource by [`Handfast::tcc`](crate::Handfast::tcc).
///
/// An operation works in the local transaction that it is given and neither commits nor rolls it
/// back. It may be called again when it failed or when its COMMIT had no answer; what it does in
/// the local transaction takes effect once, anything else must bear repetition. A cancel is called
/// only after a try that took effect.
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
    /// Where its data is: `sqlx::Postgres`, `sqlx::MySql` or `sqlx::Sqlite`.
    type Database: AtDatabase;
    /// What it is to do. All three operations get the same; the coordinator keeps it as JSON, so
    /// what a version of the service has written, the next one must read.
    type Input: Serialize + DeserializeOwned + Send + Sync;
    /// Why it could not.
    type Error: std::error::Error + Send + Sync + 'static;

    /// How long a confirm or cancel may take, 20 seconds unless set. Then it is cut off, its local
    /// transaction rolled back, and it is called again. Too short: slow ones never end. Too long:
    /// one that hangs keeps others waiting.
    const TIME_LIMIT: Duration = Duration::from_secs(20);

    /// Checks that the action is possible, and holds what it needs. An error rolls the local
    /// transaction back and goes to the caller; nothing is confirmed or cancelled then.
    fn try_(
        &self,
        input: &Self::Input,
        branch: &TccBranch,
        local: &mut Transaction<'_, Self::Database>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Makes final what was held. Must succeed in the end: it is called until it does.
    fn confirm(
        &self,
        input: &Self::Input,
        branch: &TccBranch,
        local: &mut Transaction<'_, Self::Database>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Lets go of what was held. Must succeed in the end: it is called until it does, or until an
    /// error of it is [hopeless](Self::is_hopeless).
    fn cancel(
        &self,
        input: &Self::Input,
        branch: &TccBranch,
        local: &mut Transaction<'_, Self::Database>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Whether an error of the cancel will come again however often it is called. The branch then
    /// waits for an operator, and the global needs one. Unless overridden no error is hopeless.
    ///
    /// A confirm is not asked for this: what was promised by the try is asked for until it is done.
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

    /// Its id within the global: with the XID a name that no other action has.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Leaves data for the confirm or cancel, such as the number of a reservation that the try
    /// made. It lasts if and only if the try does. At most 64 KiB.
    ///
    /// # Errors
    /// [`FenceError::ContextTooLarge`], or what the database says.
    pub async fn leave<DB: AtDatabase>(
        &self,
        local: &mut Transaction<'_, DB>,
        data: &[u8],
    ) -> Result<(), FenceError> {
        self.fence.leave(local, data).await
    }

    /// The data that the try has [left](Self::leave), if it has.
    ///
    /// # Errors
    /// What the database says.
    pub async fn left<DB: AtDatabase>(
        &self,
        local: &mut Transaction<'_, DB>,
    ) -> Result<Option<Vec<u8>>, FenceError> {
        self.fence.left(local).await
    }
}

/// Calls the operation.
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

//! The code of a service for a step: an action and its compensation.

use std::time::Duration;

use handfast_proto::v1;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Transaction;

use crate::at::AtDatabase;
use crate::fence::FenceError;
use crate::xid::Xid;

/// An action that a service does in sagas, and its compensation.
///
/// Both run in a fenced local transaction, which is committed when they return `Ok`: **everything
/// they do must be in that local transaction**, or be harmless when repeated. They may run again,
/// in a fresh local transaction, after the one before was rolled back.
///
/// ```
/// use handfast::saga::{SagaAction, SagaCall, StepError};
/// use sqlx::{Sqlite, Transaction};
///
/// struct ReserveStock;
///
/// impl SagaAction<Sqlite> for ReserveStock {
///     type Input = (i64, i64);
///     type Output = ();
///
///     async fn act(
///         &self,
///         local: &mut Transaction<'_, Sqlite>,
///         &(product, units): &(i64, i64),
///         _call: &SagaCall,
///     ) -> Result<(), StepError> {
///         let reserve = "UPDATE stock SET units = units - ?1 WHERE product = ?2 AND units >= ?1";
///         let reserved = sqlx::query(reserve).bind(units).bind(product).execute(&mut **local);
///         if reserved.await?.rows_affected() == 0 {
///             return Err(StepError::refuse("out of stock"));
///         }
///         Ok(())
///     }
///
///     async fn compensate(
///         &self,
///         local: &mut Transaction<'_, Sqlite>,
///         &(product, units): &(i64, i64),
///         _call: &SagaCall,
///     ) -> Result<(), StepError> {
///         let put_back = "UPDATE stock SET units = units + ?1 WHERE product = ?2";
///         sqlx::query(put_back).bind(units).bind(product).execute(&mut **local).await?;
///         Ok(())
///     }
/// }
/// ```
pub trait SagaAction<DB: AtDatabase>: Send + Sync + 'static {
    /// The input that the saga passes, as JSON on the wire.
    type Input: DeserializeOwned + Send + Sync;
    /// The output that later steps, and the compensation, receive. At most 64 KiB as JSON.
    type Output: Serialize + Send;

    /// How long an action or compensation may take, 20 seconds unless set. After that it is cut
    /// off, its local transaction is rolled back, and it is called again. Too short: slow ones
    /// never end. Too long: one that hangs keeps its compensation waiting.
    const TIME_LIMIT: Duration = Duration::from_secs(20);

    /// Does the step's work.
    ///
    /// # Errors
    /// [`StepError::refuse`] ends the saga, which is then compensated. After any other error the
    /// action is tried again.
    fn act(
        &self,
        local: &mut Transaction<'_, DB>,
        input: &Self::Input,
        call: &SagaCall,
    ) -> impl Future<Output = Result<Self::Output, StepError>> + Send;

    /// Undoes the work of `act`. It is called only if `act` was committed.
    ///
    /// # Errors
    /// [`StepError::refuse`] leaves the step to an operator. After any other error the compensation
    /// is tried again, without a limit.
    fn compensate(
        &self,
        _local: &mut Transaction<'_, DB>,
        _input: &Self::Input,
        _call: &SagaCall,
    ) -> impl Future<Output = Result<(), StepError>> + Send {
        async { Err(StepError::refuse("this action has no compensation")) }
    }
}

/// The step that an action or compensation is called for.
#[derive(Clone, Debug)]
pub struct SagaCall {
    pub(super) xid: Xid,
    pub(super) branch: u64,
    pub(super) step: v1::SagaStepCall,
}

impl SagaCall {
    /// Returns the saga's XID.
    #[must_use]
    pub fn xid(&self) -> &Xid {
        &self.xid
    }

    /// Returns the application's key of the saga, such as an order number.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.step.key
    }

    /// Returns the step's name, after the names of the child sagas that contain it, as in
    /// `billing/charge`.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step.step
    }

    /// Returns a key that is the same for every attempt of this step and differs from those of all
    /// other steps. Pass it to services that recognise repeated requests by such a key.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}", self.xid, self.branch)
    }

    /// Returns the output of a step that this one takes, by the name under which it takes it. In a
    /// compensation the output of the step's own action is available too. `None` if that step gave
    /// no output.
    ///
    /// # Errors
    /// A refusal if the output is of another type.
    pub fn output_of<T: DeserializeOwned>(&self, step: &str) -> Result<Option<T>, StepError> {
        let given = self.step.outputs.iter().find(|given| given.step == step);
        given.map(|given| from_json(&given.output)).transpose()
    }
}

/// The reason why an action or compensation did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// The work must not be done, and trying again would not help.
    #[error("{reason}")]
    Refused {
        /// The reason, for operators.
        reason: String,
    },
    /// The work could not be done this time.
    #[error("{reason}")]
    Failed {
        /// The reason, for operators.
        reason: String,
    },
    /// The database failed. The work is tried again.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The fence refused the operation, or could not be read.
    #[error(transparent)]
    Fence(#[from] FenceError),
}

impl StepError {
    /// Returns an error that refuses the work. If an action refuses, the saga is compensated.
    pub fn refuse(reason: impl Into<String>) -> Self {
        Self::Refused { reason: reason.into() }
    }

    /// Returns an error that fails this attempt. The work is tried again after the step's next
    /// pause.
    pub fn fail(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into() }
    }
}

/// Parses JSON. Text that another version, or another type, has written is refused, since it would
/// be unreadable the next time too.
pub(super) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StepError> {
    let json = if bytes.is_empty() { b"null" } else { bytes };
    serde_json::from_slice(json).map_err(|error| StepError::refuse(format!("unreadable: {error}")))
}

pub(super) fn to_json(value: &impl Serialize) -> Result<Vec<u8>, StepError> {
    serde_json::to_vec(value).map_err(|error| StepError::refuse(format!("no json: {error}")))
}

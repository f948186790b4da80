//! What a service writes for a step: an action and its compensation.

use std::time::Duration;

use handfast_proto::v1;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::Transaction;

use crate::at::AtDatabase;
use crate::fence::FenceError;
use crate::xid::Xid;

/// Something that a service does in sagas, and how it takes it back.
///
/// Both run in a local transaction that is fenced, and that is committed when they return `Ok`:
/// **everything they do must be in that local transaction**, or be harmless when repeated. They may
/// run again, in a fresh local transaction, when the one before was rolled back.
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
    /// What the saga hands over, as JSON on its way.
    type Input: DeserializeOwned + Send + Sync;
    /// What later steps, and the compensation, are given; at most 64 KiB as JSON.
    type Output: Serialize + Send;

    /// How long an action or compensation may take, 20 seconds unless set. Then it is cut off, its
    /// local transaction rolled back, and it is called again. Too short: slow ones never end. Too
    /// long: one that hangs keeps its compensation waiting.
    const TIME_LIMIT: Duration = Duration::from_secs(20);

    /// Does the step's work.
    ///
    /// # Errors
    /// [`StepError::refuse`] ends the saga: it is taken back. Everything else is tried again.
    fn act(
        &self,
        local: &mut Transaction<'_, DB>,
        input: &Self::Input,
        call: &SagaCall,
    ) -> impl Future<Output = Result<Self::Output, StepError>> + Send;

    /// Takes back what `act` has done. It is called only if `act` was committed.
    ///
    /// # Errors
    /// [`StepError::refuse`] calls an operator. Everything else is tried again, for ever.
    fn compensate(
        &self,
        _local: &mut Transaction<'_, DB>,
        _input: &Self::Input,
        _call: &SagaCall,
    ) -> impl Future<Output = Result<(), StepError>> + Send {
        async { Err(StepError::refuse("this action has no compensation")) }
    }
}

/// What an action or compensation is told of the step that it is called for.
#[derive(Clone, Debug)]
pub struct SagaCall {
    pub(super) xid: Xid,
    pub(super) branch: u64,
    pub(super) step: v1::SagaStepCall,
}

impl SagaCall {
    /// The saga's XID.
    #[must_use]
    pub fn xid(&self) -> &Xid {
        &self.xid
    }

    /// The application's key of the saga, such as an order number.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.step.key
    }

    /// The step's name, behind those of the children that it is in, as in `billing/charge`.
    #[must_use]
    pub fn step(&self) -> &str {
        &self.step.step
    }

    /// The same for every attempt of this step, and of no other: to be handed to services that tell
    /// repeated requests apart by such a key.
    #[must_use]
    pub fn idempotency_key(&self) -> String {
        format!("{}/{}", self.xid, self.branch)
    }

    /// The output of a step that this one takes, by the name by which it takes it; in a
    /// compensation also of its own action. `None` if that step gave none.
    ///
    /// # Errors
    /// A refusal if the output is of another type.
    pub fn output_of<T: DeserializeOwned>(&self, step: &str) -> Result<Option<T>, StepError> {
        let given = self.step.outputs.iter().find(|given| given.step == step);
        given.map(|given| from_json(&given.output)).transpose()
    }
}

/// Why an action or compensation did not come to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StepError {
    /// It must not be done, and trying again would not help.
    #[error("{reason}")]
    Refused {
        /// Why, for people.
        reason: String,
    },
    /// It could not be done this time.
    #[error("{reason}")]
    Failed {
        /// Why, for people.
        reason: String,
    },
    /// The database failed; it is tried again.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The fence did not let it through, or could not be asked.
    #[error(transparent)]
    Fence(#[from] FenceError),
}

impl StepError {
    /// It must not be done: an action's refusal takes the saga back.
    pub fn refuse(reason: impl Into<String>) -> Self {
        Self::Refused { reason: reason.into() }
    }

    /// It could not be done this time: it is tried again in the step's rhythm.
    pub fn fail(reason: impl Into<String>) -> Self {
        Self::Failed { reason: reason.into() }
    }
}

/// Refuses what another version, or another type, has written: it will not become better.
pub(super) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, StepError> {
    let json = if bytes.is_empty() { b"null" } else { bytes };
    serde_json::from_slice(json).map_err(|error| StepError::refuse(format!("unreadable: {error}")))
}

pub(super) fn to_json(value: &impl Serialize) -> Result<Vec<u8>, StepError> {
    serde_json::to_vec(value).map_err(|error| StepError::refuse(format!("no json: {error}")))
}

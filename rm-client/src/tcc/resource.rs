//! An action that takes part in global transactions, and its first phase.

use std::fmt;
use std::sync::Arc;

use handfast_proto::v1;
use serde::Serialize;
use sqlx::Pool;

use super::error::TccError;
use super::phase_two::TccPhaseTwo;
use super::{Tcc, TccBranch, operate};
use crate::at::crash_point;
use crate::connect::Handfast;
use crate::context;
use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::fence::{FenceError, Operation, check_action, table};
use crate::in_doubt::InDoubt;
use crate::xid::Xid;

/// The largest input, as JSON: what the coordinator keeps for a branch.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// An action, known to the coordinator. Cheap to clone. Made by [`Handfast::tcc`].
pub struct TccResource<T: Tcc> {
    shared: Arc<Shared<T>>,
}

/// What all clones of a resource and its phase two share.
pub(super) struct Shared<T: Tcc> {
    pub(super) name: String,
    pub(super) pool: Pool<T::Database>,
    pub(super) action: T,
    coordinator: Coordinator,
}

impl Handfast {
    /// Makes an action a resource: this process from then on finishes branches of it, its own and
    /// those of other processes that know it under the same name. The name is the resource's id,
    /// the same in every process and version of the service.
    ///
    /// ```no_run
    /// # use handfast::{Handfast, Tcc, TccError};
    /// # async fn example<T: Tcc<Database = sqlx::Sqlite, Input = i64>>(
    /// #     handfast: Handfast, pool: sqlx::SqlitePool, action: T,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let points = handfast.tcc("debit-points", pool, action).await?;
    /// handfast.transaction("buy").run(async |_tx| points.try_(&30).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`FenceError::Name`] if the name is empty or has more than 128 characters,
    /// [`FenceError::TableMissing`] if [`Handfast::migrate`] was never run there, or what the
    /// database says.
    pub async fn tcc<T: Tcc>(
        &self,
        name: impl Into<String>,
        pool: Pool<T::Database>,
        action: T,
    ) -> Result<TccResource<T>, FenceError> {
        let (name, coordinator) = (name.into(), self.coordinator().clone());
        if name.is_empty() {
            return Err(FenceError::Name { reason: "the name of the action is empty".to_owned() });
        }
        check_action(&name)?;
        let mut connection = pool.acquire().await?;
        table::check::<T::Database>(&mut connection).await?;
        drop(connection);
        let shared = Arc::new(Shared { name, pool, action, coordinator });
        let (id, label) = (shared.name.clone(), shared.name.clone());
        let resource = v1::Resource { id, mode: v1::Mode::Tcc.into(), label };
        let phase_two = Arc::new(TccPhaseTwo::new(Arc::clone(&shared)));
        shared.coordinator.register_resource(resource, phase_two);
        Ok(TccResource { shared })
    }
}

impl<T: Tcc> TccResource<T> {
    /// The resource id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.name
    }

    /// Runs the try as a branch of the ambient global: registers the branch with its input, then
    /// calls [`Tcc::try_`] in a local transaction. When the global commits, the action is
    /// confirmed, when it rolls back, cancelled.
    ///
    /// The try may be called several times, if the database ends its local transaction in favour of
    /// others; it takes effect once. Dropping the future makes the global one that can only be
    /// rolled back.
    ///
    /// # Errors
    /// A [`TccError`]; the try did not take effect then, or will be cancelled.
    pub async fn try_(&self, input: &T::Input) -> Result<(), TccError<T::Error>> {
        let shared = &self.shared;
        let context = context::current().ok_or(Error::TransactionRequired)?;
        let application_data = encode(&shared.name, input)?;
        let id = branch_id();
        let branch = TccBranch::new(context.xid, id, &shared.name)?;
        let mut in_doubt = in_doubt(&shared.coordinator, &branch.xid, branch.id);
        if let Err(error) = shared.register(&branch, application_data).await {
            if matches!(error, Error::Rejected(_)) {
                in_doubt.settled();
            }
            return Err(error.into());
        }
        crash_point("tcc-after-register");
        let tried = shared.run(Operation::Try, input, &branch).await;
        crash_point("tcc-after-try");
        if let Err(error) = &tried {
            let outcome = outcome_of(error);
            shared.coordinator.report_outcome(&branch.xid, branch.id, outcome).await;
        }
        in_doubt.settled();
        tried
    }
}

/// What a try that failed has come to.
fn outcome_of<E>(error: &TccError<E>) -> v1::PhaseOneOutcome {
    match error {
        // A COMMIT that had no answer looks like this.
        TccError::Fence(FenceError::Database(_)) => v1::PhaseOneOutcome::Unknown,
        TccError::Action(_)
        | TccError::Fence(_)
        | TccError::Coordinator(_)
        | TccError::Input { .. }
        | TccError::InputTooLarge { .. } => v1::PhaseOneOutcome::Failed,
    }
}

impl<T: Tcc> Shared<T> {
    async fn register(&self, branch: &TccBranch, application_data: Vec<u8>) -> Result<(), Error> {
        let request = v1::RegisterBranchRequest {
            xid: branch.xid.to_string(),
            branch_id: branch.id,
            resource_id: self.name.clone(),
            mode: v1::Mode::Tcc.into(),
            rows: Vec::new(),
            wait: None,
            application_data,
            client_id: String::new(),
        };
        self.coordinator.register_branch(request).await.map(drop)
    }

    /// Runs an operation under the fence, in one local transaction.
    pub(super) async fn run(
        &self,
        operation: Operation,
        input: &T::Input,
        branch: &TccBranch,
    ) -> Result<(), TccError<T::Error>> {
        let ended = branch.fence.run(&self.pool, operation, |local| {
            Box::pin(async move {
                let done = operate(&self.action, operation, input, branch, local).await;
                crash_point(if operation == Operation::Try { IN_TRY } else { IN_PHASE_TWO });
                done.map_err(TccError::Action)
            })
        });
        ended.await.map(drop)
    }

    /// Marks the branch cancelled and calls nothing: an operator has ended it.
    pub(super) async fn accept(&self, branch: &TccBranch) -> Result<(), TccError<T::Error>> {
        let nothing = branch.fence.run(&self.pool, Operation::Cancel, |_| {
            Box::pin(std::future::ready(Ok::<_, TccError<T::Error>>(())))
        });
        match nothing.await {
            // The branch stays confirmed, which the operator accepts.
            Err(TccError::Fence(FenceError::Contradicted { .. })) => Ok(()),
            ended => ended.map(drop),
        }
    }
}

const IN_TRY: &str = "tcc-in-try";
const IN_PHASE_TWO: &str = "tcc-in-phase-two";

/// Positive and 63 bits, so that it fits every database's BIGINT.
pub(super) fn branch_id() -> u64 {
    (rand::random::<u64>() >> 1).max(1)
}

/// The input as the coordinator keeps it.
pub(super) fn encode<I: Serialize, E>(resource: &str, input: &I) -> Result<Vec<u8>, TccError<E>> {
    let resource = resource.to_owned();
    let data = match serde_json::to_vec(input) {
        Ok(data) => data,
        Err(source) => return Err(TccError::Input { resource, source }),
    };
    let bytes = data.len();
    if bytes > INPUT_BYTES_MAX {
        return Err(TccError::InputTooLarge { resource, bytes, bytes_max: INPUT_BYTES_MAX });
    }
    Ok(data)
}

/// A try that is cut off by a dropped future, or whose registration had no answer: whether it was
/// registered or committed cannot be known, so the global must not commit.
pub(super) fn in_doubt(coordinator: &Coordinator, xid: &Xid, branch: u64) -> InDoubt {
    InDoubt::new(coordinator, xid, branch, v1::PhaseOneOutcome::Unknown)
}

impl<T: Tcc> Clone for TccResource<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T: Tcc> fmt::Debug for TccResource<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TccResource").field("id", &self.id()).finish_non_exhaustive()
    }
}

//! An action that takes part in global transactions, and its phase one.

use std::fmt;
use std::sync::Arc;

use handfast_proto::v1;
use serde::Serialize;
use sqlx::Pool;
use tracing::Instrument;

use super::error::TccError;
use super::phase_two::TccPhaseTwo;
use super::{Tcc, TccBranch, operate};
use crate::at::crash_point;
use crate::connect::Handfast;
use crate::context;
use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::fence::{FenceError, Operation, check_action, table};
use crate::trace;
use crate::unknown_outcome::UnknownOutcomeGuard;
use crate::xid::Xid;

/// The largest input that the coordinator stores for a branch, in bytes of JSON.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// An action registered with the coordinator. Cheap to clone. Created by [`Handfast::tcc`].
pub struct TccResource<T: Tcc> {
    shared: Arc<Shared<T>>,
}

/// The state that all clones of a resource and its phase two share.
pub(super) struct Shared<T: Tcc> {
    pub(super) name: String,
    pub(super) pool: Pool<T::Database>,
    pub(super) action: T,
    coordinator: Coordinator,
}

impl Handfast {
    /// Registers an action as a resource. From then on this process finishes branches of the
    /// action: its own, and those of other processes that have registered the same name. The name
    /// is the resource's id, and must be the same in every process and version of the service.
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
    /// [`FenceError::TableMissing`] if [`Handfast::migrate`] was never run on the database, or the
    /// error of the database.
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
    /// Returns the resource id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.shared.name
    }

    /// Runs the try as a branch of the ambient global: registers the branch with its input, then
    /// calls [`Tcc::try_`] in a local transaction. If the global commits, the action is confirmed.
    /// If it rolls back, the action is cancelled.
    ///
    /// The try may be called several times, if the database aborts its local transaction in favour
    /// of others. It takes effect once. If the future is dropped, the global can only be rolled
    /// back.
    ///
    /// # Errors
    /// A [`TccError`]. The try did not take effect, or it will be cancelled.
    pub async fn try_(&self, input: &T::Input) -> Result<(), TccError<T::Error>> {
        let shared = &self.shared;
        let context = context::current().ok_or(Error::TransactionRequired)?;
        let _open = context.open_branch();
        let application_data = encode(&shared.name, input)?;
        let id = branch_id();
        let branch = TccBranch::new(context.xid, id, &shared.name)?;
        let span = trace::branch(&branch.xid, branch.id, &shared.name, "TCC", None);
        shared.register_and_try(input, application_data, &branch).instrument(span).await
    }
}

impl<T: Tcc> Shared<T> {
    async fn register_and_try(
        &self,
        input: &T::Input,
        application_data: Vec<u8>,
        branch: &TccBranch,
    ) -> Result<(), TccError<T::Error>> {
        let mut guard = outcome_guard(&self.coordinator, &branch.xid, branch.id);
        if let Err(error) = self.register(branch, application_data).await {
            // A refused registration has left no branch, so the global may still commit.
            if matches!(error, Error::Rejected(_)) {
                guard.disarm();
            }
            return Err(error.into());
        }
        crash_point("tcc-after-register");
        let tried = self.run(Operation::Try, input, branch).await;
        crash_point("tcc-after-try");
        if let Err(error) = &tried {
            let outcome = outcome_of(error);
            self.coordinator.report_outcome(&branch.xid, branch.id, outcome).await;
        }
        // Only after the report: until then the guard is what reports.
        guard.disarm();
        tried
    }
}

/// Returns the phase-one outcome of a failed try.
fn outcome_of<E>(error: &TccError<E>) -> v1::PhaseOneOutcome {
    match error {
        // A COMMIT without an answer gives the first error. After the second one part of the try
        // may have taken effect, and its fence may be there.
        TccError::Fence(FenceError::Database(_) | FenceError::EndedEarly { .. }) => {
            v1::PhaseOneOutcome::Unknown
        }
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
            traceparent: String::new(),
            is_last: false,
            may_be_lost: false,
        };
        self.coordinator.register_branch(request).await.map(drop)
    }

    /// Runs an operation behind the fence, in one local transaction.
    pub(super) async fn run(
        &self,
        operation: Operation,
        input: &T::Input,
        branch: &TccBranch,
    ) -> Result<(), TccError<T::Error>> {
        let ended = branch.fence.run(&self.pool, operation, async |mut local| {
            let done = operate(&self.action, operation, input, branch, &mut local).await;
            crash_point(if operation == Operation::Try { IN_TRY } else { IN_PHASE_TWO });
            done.map_err(TccError::Action)
        });
        ended.await.map(drop)
    }

    /// Marks the branch as cancelled without calling the action: an operator has ended it.
    pub(super) async fn accept(&self, branch: &TccBranch) -> Result<(), TccError<T::Error>> {
        let nothing = branch.fence.run(&self.pool, Operation::Cancel, |_| {
            std::future::ready(Ok::<_, TccError<T::Error>>(()))
        });
        match nothing.await {
            // The branch stays confirmed. The operator accepts that.
            Err(TccError::Fence(FenceError::Contradicted { .. })) => Ok(()),
            ended => ended.map(drop),
        }
    }
}

const IN_TRY: &str = "tcc-in-try";
const IN_PHASE_TWO: &str = "tcc-in-phase-two";

/// Draws a branch id: positive and 63 bits long, so that it fits every database's BIGINT.
pub(super) fn branch_id() -> u64 {
    (rand::random::<u64>() >> 1).max(1)
}

/// Encodes the input as the coordinator stores it.
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

/// Returns a guard for a try that may be cut off by a dropped future, or whose registration may
/// have no answer. It is then unknown whether the branch was registered or its try committed, so
/// the global must not commit.
pub(super) fn outcome_guard(
    coordinator: &Coordinator,
    xid: &Xid,
    branch: u64,
) -> UnknownOutcomeGuard {
    UnknownOutcomeGuard::new(coordinator, xid, branch, v1::PhaseOneOutcome::Unknown)
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

//! Settles the fences of steps whose saga has ended, so that they can be purged.
//!
//! # The rule
//!
//! While a saga is running, the row of a step that was done stays *tried*, however old it is. The
//! step's answer may have been lost, so that the action is called again after minutes or weeks, or
//! its compensation may be called. Only the coordinator knows when this is over. Once it reports
//! the saga as completed or compensated, it makes no more calls of the saga, and the row becomes
//! *confirmed*.
//!
//! A call that was made before may still be under way, such as in a process that was suspended.
//! That is why the row is not removed at once: while it is confirmed, it answers a late action with
//! the stored output and refuses a late compensation. [`purge`](crate::fence::purge) removes it
//! later. Its age counts from the confirmation, and must be longer than a call can be under way.
//!
//! A row whose XID the coordinator does not know as a saga stays. It belongs to another mode or
//! another coordinator, or its saga was forgotten, and it may still be needed.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt, future, stream};
use handfast_proto::v1;
use sqlx::Pool;

use super::participant::Steps;
use crate::at::AtDatabase;
use crate::connect::Handfast;
use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::fence::lent::Lent;
use crate::fence::tried::{BranchPosition, tried};
use crate::fence::{Fence, FenceError, Operation, Pass, purge};
use crate::xid::Xid;

/// How often a participant settles. It must be several times before the coordinator forgets a saga.
pub(super) const SETTLE_EVERY: Duration = Duration::from_secs(300);
/// How long one settling may take: a database whose host has vanished never answers.
pub(super) const SETTLE_MAX: Duration = Duration::from_secs(300);
/// How long the fence of a settled step is kept: longer than a call can be under way.
const KEPT: Duration = Duration::from_secs(7 * 86_400);
/// The most rows that one sweep removes.
const PURGED_MAX: u64 = 100_000;
/// The most rows that are read at once and confirmed in one local transaction, which locks them
/// meanwhile.
const BATCH_MAX: usize = 200;
/// The most sagas whose status is queried concurrently (BOUNDED).
const ASKED_MAX: usize = 16;

/// The error that stopped a settling. Fences that were settled before it stay settled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettleError {
    /// The coordinator could not be asked.
    #[error(transparent)]
    Coordinator(#[from] Error),
    /// The database failed.
    #[error(transparent)]
    Fence(#[from] FenceError),
}

impl SettleError {
    /// The stable code, listed in `docs/errors.md`.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Coordinator(error) => error.code(),
            Self::Fence(error) => error.code(),
        }
    }
}

impl From<sqlx::Error> for SettleError {
    fn from(error: sqlx::Error) -> Self {
        Self::Fence(error.into())
    }
}

impl Handfast {
    /// Marks the steps in this database whose saga has ended as never called again, so that
    /// [`purge`] may remove their fences. Returns how many it marked. Participants settle and purge
    /// by themselves every few minutes. This function is for a database whose participants are
    /// gone.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// async fn sweep(
    ///     handfast: &handfast::Handfast,
    ///     pool: &sqlx::SqlitePool,
    /// ) -> Result<u64, handfast::saga::SettleError> {
    ///     handfast.settle_sagas(pool).await?;
    ///     Ok(handfast::fence::purge(pool, Duration::from_secs(7 * 86_400), 100_000).await?)
    /// }
    /// ```
    ///
    /// # Errors
    /// A [`SettleError`] if the coordinator cannot be asked or the database fails.
    pub async fn settle_sagas<DB: AtDatabase>(&self, pool: &Pool<DB>) -> Result<u64, SettleError> {
        settle(self.coordinator(), pool).await
    }
}

/// Settles and purges at intervals, for as long as the participant lives.
pub(super) fn start<DB: AtDatabase>(coordinator: &Coordinator, steps: &Arc<Steps<DB>>) {
    let (connection, steps) = (coordinator.downgrade(), Arc::downgrade(steps));
    coordinator.spawn(async move {
        while let (Some(coordinator), Some(steps)) = (connection.upgrade(), steps.upgrade()) {
            let every = steps.settle_every;
            match tokio::time::timeout(steps.settle_max, sweep(&coordinator, &steps.pool)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "fences of steps left to the next sweep");
                }
                Err(_) => tracing::warn!("a sweep of fences took too long, left to the next one"),
            }
            // A task that kept these while it sleeps would keep the connection open.
            drop((coordinator, steps));
            tokio::time::sleep(every).await;
        }
    });
}

async fn sweep<DB: AtDatabase>(
    coordinator: &Coordinator,
    pool: &Pool<DB>,
) -> Result<(), SettleError> {
    let settled = settle(coordinator, pool).await?;
    let purged = purge(pool, KEPT, PURGED_MAX).await?;
    tracing::debug!(settled, purged, "fences of steps swept");
    Ok(())
}

async fn settle<DB: AtDatabase>(
    coordinator: &Coordinator,
    pool: &Pool<DB>,
) -> Result<u64, SettleError> {
    let (mut settled, mut place) = (0, BranchPosition::default());
    loop {
        let page = tried::<DB>(pool, &place, BATCH_MAX).await?;
        let Some(next) = page.next else { return Ok(settled) };
        let ended = ended(coordinator, &page.fences).await?;
        let over = page.fences.iter().filter(|fence| ended.contains(fence.xid()));
        settled += confirm(pool, &Vec::from_iter(over)).await?;
        place = next;
    }
}

/// Returns those sagas of these branches that have ended.
async fn ended(coordinator: &Coordinator, fences: &[Fence]) -> Result<Vec<Xid>, Error> {
    // A page is sorted by name, so the branches of a saga are adjacent.
    let mut xids = Vec::from_iter(fences.iter().map(|fence| fence.xid().clone()));
    xids.dedup();
    let asked = xids.into_iter().map(async |xid| {
        let has_ended = has_ended(coordinator, &xid).await?;
        Ok(has_ended.then_some(xid))
    });
    let answers = stream::iter(asked).buffer_unordered(ASKED_MAX);
    answers.try_filter_map(future::ok).try_collect().await
}

async fn has_ended(coordinator: &Coordinator, xid: &Xid) -> Result<bool, Error> {
    let reply_when = v1::ReplyWhen::Decided.into();
    let request = v1::GetSagaRequest { xid: xid.as_str().to_owned(), reply_when };
    match coordinator.get_saga(request, Duration::ZERO).await {
        // An XID of another coordinator may have the number of a saga of this one.
        Ok(saga) if saga.xid != xid.as_str() => Ok(false),
        Ok(saga) => Ok(match saga.status() {
            v1::SagaStatus::Completed | v1::SagaStatus::Compensated => true,
            v1::SagaStatus::Running
            | v1::SagaStatus::Compensating
            | v1::SagaStatus::NeedsOperator
            | v1::SagaStatus::Unspecified => false,
        }),
        // The coordinator does not know it as a saga.
        Err(Error::Rejected(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Confirms these fences in one local transaction, in the order of their names, so that two
/// processes that settle the same rows wait for each other without a deadlock. Any other
/// transaction that wants one of the rows is a late call, and holds no other fence.
async fn confirm<DB: AtDatabase>(pool: &Pool<DB>, fences: &[&Fence]) -> Result<u64, SettleError> {
    if fences.is_empty() {
        return Ok(0);
    }
    let mut confirmed = 0;
    let mut connection = Lent::of(pool).await?;
    let mut local = DB::begin_on(&mut connection).await?;
    for fence in fences {
        match fence.enter(&mut local, Operation::Confirm).await {
            Ok(Pass::Run) => confirmed += 1,
            // Since the read, another process has settled it, or it was compensated before the saga
            // ended.
            Ok(Pass::AlreadyDone | Pass::Empty) | Err(FenceError::Contradicted { .. }) => {}
            // Another process has settled and purged it. MySQL may lock the gap in its place until
            // the local transaction ends, so this transaction must not wait for any more rows.
            Err(FenceError::NotTried { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    local.commit().await?;
    connection.end();
    Ok(confirmed)
}

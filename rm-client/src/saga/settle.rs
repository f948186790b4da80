//! Settles the fences of steps whose saga has ended, so that they can be purged.
//!
//! # The rule
//!
//! While a saga goes on, the row of a step that was done stays *tried*, however old it is: the
//! answer may have been lost and the action be called again, or its compensation be called, after
//! minutes or weeks. Only the coordinator knows when that is over. Once it says that the saga has
//! completed or was taken back, it makes no call of the saga any more, and the row is *confirmed*.
//!
//! A call that was made before may still be under way, such as in a process that was stopped. That
//! is why the row is not removed then: confirmed, it answers a late action with what it gave, and
//! refuses a late compensation. It goes with [`purge`](crate::fence::purge), whose age counts from
//! here on, and which must be longer than a call can be under way.
//!
//! What the coordinator does not know as a saga stays: it belongs to another mode or another
//! coordinator, or was forgotten, and nothing says that nobody will ask for it.

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
use crate::fence::tried::{Place, tried};
use crate::fence::{Fence, FenceError, Operation, Pass, purge};
use crate::xid::Xid;

/// How often a participant settles: several times before the coordinator forgets a saga.
pub(super) const SETTLE_EVERY: Duration = Duration::from_secs(300);
/// How long that may take: a database that went away without a word never answers.
pub(super) const SETTLE_MAX: Duration = Duration::from_secs(300);
/// How long the fence of a settled step is kept: longer than a call can be under way.
const KEPT: Duration = Duration::from_secs(7 * 86_400);
/// Rows that one sweep removes at most.
const PURGED_MAX: u64 = 100_000;
/// Rows that are read, and confirmed in one local transaction, at most: it holds them meanwhile.
const BATCH_MAX: usize = 200;
/// Sagas that are asked for beside each other (BOUNDED).
const ASKED_MAX: usize = 16;

/// Why settling stopped. What was settled before stays so.
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
    /// Says of the steps in this database whose saga has ended that nobody will ask for them again,
    /// so that [`purge`] may remove their fences, and answers how many. Participants do both by
    /// themselves, every few minutes; this is for a database whose participants are gone.
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
    /// When the coordinator cannot be asked, or what the database says.
    pub async fn settle_sagas<DB: AtDatabase>(&self, pool: &Pool<DB>) -> Result<u64, SettleError> {
        settle(self.coordinator(), pool).await
    }
}

/// Settles and purges now and then, for as long as the participant takes part.
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
    let (mut settled, mut place) = (0, Place::default());
    loop {
        let page = tried::<DB>(pool, &place, BATCH_MAX).await?;
        let Some(next) = page.next else { return Ok(settled) };
        let ended = ended(coordinator, &page.fences).await?;
        let over = page.fences.iter().filter(|fence| ended.contains(fence.xid()));
        settled += confirm(pool, &Vec::from_iter(over)).await?;
        place = next;
    }
}

/// The sagas of these branches that have ended.
async fn ended(coordinator: &Coordinator, fences: &[Fence]) -> Result<Vec<Xid>, Error> {
    // In the order of their names, as a page is: a saga's branches stand together.
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
        // Another coordinator's XID may have the number of a saga here.
        Ok(saga) if saga.xid != xid.as_str() => Ok(false),
        Ok(saga) => Ok(match saga.status() {
            v1::SagaStatus::Completed | v1::SagaStatus::Compensated => true,
            v1::SagaStatus::Running
            | v1::SagaStatus::Compensating
            | v1::SagaStatus::NeedsOperator
            | v1::SagaStatus::Unspecified => false,
        }),
        // No saga that it knows.
        Err(Error::Rejected(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Confirms these in one local transaction, in the order of their names, so that two that settle
/// the same wait for each other and are no deadlock. Whoever else wants one of the rows is late,
/// and holds no other.
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
            // Since it was read somebody else has settled it, or it was taken back before the saga
            // ended.
            Ok(Pass::AlreadyDone | Pass::Empty) | Err(FenceError::Contradicted { .. }) => {}
            // And purged it. MySQL may hold the gap in its place until the local transaction ends,
            // so that nothing more is waited for in this one.
            Err(FenceError::NotTried { .. }) => break,
            Err(error) => return Err(error.into()),
        }
    }
    local.commit().await?;
    connection.end();
    Ok(confirmed)
}

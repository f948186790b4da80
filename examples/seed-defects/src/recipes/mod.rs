//! The recipes, by the numbers under which they are known.

mod counter;
mod getset;
mod latch;
mod renewal;
mod scheduler;
mod table;
mod thread;
pub(crate) mod tree;
mod trying;
pub(crate) mod watched;
mod znodes;

use anyhow::Result;
use clap::Subcommand;
use serde::Serialize;

use crate::ground::Ground;

/// A recipe that is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Subcommand)]
pub(crate) enum Recipe {
    /// 1: a try without a limit waits without a limit.
    TryWaits,
    /// 2: the database's clock writes the expiry, the client's reads it.
    ClientClock,
    /// 3: unlock deletes the row, and the fencing token with it.
    RowDeleted,
    /// 4: the first error ends the renewal.
    RenewalDies,
    /// 5: a renewal that finds nothing to renew is not reported.
    RenewalFindsNothing,
    /// 6: a lock is renewed while its thread lives, and threads of a pool live forever.
    RenewedForAThread,
    /// 7: a scheduler for each lock, never shut down; a wait that spins once interrupted.
    SchedulerPerLock,
    /// 8: the owner is the thread.
    OwnerIsAThread,
    /// 9: a predecessor that is gone before it is watched.
    GoneBeforeWatched,
    /// 10: any node beside the lock's counts as a predecessor.
    ForeignNodes,
    /// 11: the reply to a create is lost, and the create is repeated.
    OrphanNode,
    /// 12: SETNX with a time, taken over with GETSET.
    Getset,
    /// 13: a counter that is decremented below zero.
    BelowZero,
    /// 14: unlocking what is not locked is a success.
    UnlockOfNothing,
}

/// The result of the steps.
#[derive(Debug, Serialize)]
pub(crate) struct RecipeResult {
    /// Whether it is what a lock promises.
    pub(crate) is_right: bool,
    pub(crate) what: String,
}

impl RecipeResult {
    pub(crate) fn new(is_right: bool, what: impl Into<String>) -> Result<Self> {
        Ok(Self { is_right, what: what.into() })
    }
}

impl Recipe {
    pub(crate) const ALL: [Self; 14] = [
        Self::TryWaits,
        Self::ClientClock,
        Self::RowDeleted,
        Self::RenewalDies,
        Self::RenewalFindsNothing,
        Self::RenewedForAThread,
        Self::SchedulerPerLock,
        Self::OwnerIsAThread,
        Self::GoneBeforeWatched,
        Self::ForeignNodes,
        Self::OrphanNode,
        Self::Getset,
        Self::BelowZero,
        Self::UnlockOfNothing,
    ];

    pub(crate) fn number(self) -> usize {
        self as usize + 1
    }

    /// The subcommand.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::TryWaits => "try-waits",
            Self::ClientClock => "client-clock",
            Self::RowDeleted => "row-deleted",
            Self::RenewalDies => "renewal-dies",
            Self::RenewalFindsNothing => "renewal-finds-nothing",
            Self::RenewedForAThread => "renewed-for-a-thread",
            Self::SchedulerPerLock => "scheduler-per-lock",
            Self::OwnerIsAThread => "owner-is-a-thread",
            Self::GoneBeforeWatched => "gone-before-watched",
            Self::ForeignNodes => "foreign-nodes",
            Self::OrphanNode => "orphan-node",
            Self::Getset => "getset",
            Self::BelowZero => "below-zero",
            Self::UnlockOfNothing => "unlock-of-nothing",
        }
    }

    pub(crate) fn defect(self) -> &'static str {
        match self {
            Self::TryWaits => "a try without a limit waits without a limit",
            Self::ClientClock => "the expiry is the database's time, compared with the client's",
            Self::RowDeleted => "unlock deletes the row, and fencing tokens start again",
            Self::RenewalDies => "the first error ends the renewal",
            Self::RenewalFindsNothing => "a renewal that finds no row goes unnoticed",
            Self::RenewedForAThread => "renewed while the thread lives, not while the job does",
            Self::SchedulerPerLock => {
                "a scheduler for each lock; a wait that spins once it is interrupted"
            }
            Self::OwnerIsAThread => "the owner is the thread, and jobs share threads",
            Self::GoneBeforeWatched => "the predecessor goes between the list and the watch",
            Self::ForeignNodes => "any node beside the lock's own counts as a predecessor",
            Self::OrphanNode => "the reply to a create is lost, and the create repeated",
            Self::Getset => "a time as the value, taken over with GETSET by clients' clocks",
            Self::BelowZero => "units = units - 1 without units > 0",
            Self::UnlockOfNothing => "unlocking what is not locked is a success",
        }
    }

    pub(crate) fn needs_redis(self) -> bool {
        matches!(self, Self::Getset | Self::UnlockOfNothing)
    }

    pub(crate) fn needs_zookeeper(self) -> bool {
        matches!(self, Self::GoneBeforeWatched | Self::ForeignNodes | Self::OrphanNode)
    }

    /// Plays the recipe as it is passed around.
    pub(crate) async fn as_written(self, ground: &Ground) -> Result<RecipeResult> {
        match self {
            Self::TryWaits => trying::as_written().await,
            Self::ClientClock => table::clock_as_written().await,
            Self::RowDeleted => table::deleted_as_written().await,
            Self::RenewalDies => renewal::error_as_written().await,
            Self::RenewalFindsNothing => renewal::nothing_as_written().await,
            Self::RenewedForAThread => renewal::thread_as_written().await,
            Self::SchedulerPerLock => scheduler::as_written().await,
            Self::OwnerIsAThread => thread::as_written().await,
            Self::GoneBeforeWatched => znodes::gone_as_written(ground).await,
            Self::ForeignNodes => znodes::foreign_as_written(ground).await,
            Self::OrphanNode => znodes::orphan_as_written(ground).await,
            Self::Getset => getset::as_written(ground).await,
            Self::BelowZero => counter::as_written().await,
            Self::UnlockOfNothing => latch::as_written(ground).await,
        }
    }

    /// Plays the same steps with this project's locks.
    pub(crate) async fn ours(self, ground: &Ground) -> Result<RecipeResult> {
        match self {
            Self::TryWaits => trying::ours().await,
            Self::ClientClock => table::clock_ours().await,
            Self::RowDeleted => table::deleted_ours().await,
            Self::RenewalDies => renewal::error_ours().await,
            Self::RenewalFindsNothing => renewal::nothing_ours().await,
            Self::RenewedForAThread => renewal::thread_ours().await,
            Self::SchedulerPerLock => scheduler::ours().await,
            Self::OwnerIsAThread => thread::ours().await,
            Self::GoneBeforeWatched => znodes::gone_ours(ground).await,
            Self::ForeignNodes => znodes::foreign_ours(ground).await,
            Self::OrphanNode => znodes::orphan_ours(ground).await,
            Self::Getset => getset::ours(ground).await,
            Self::BelowZero => counter::ours().await,
            Self::UnlockOfNothing => latch::ours(ground).await,
        }
    }
}

//! A lock of sequential nodes, written by hand with callbacks, and its three defects.

use anyhow::{Context, Result};
use handfast_locks::LockName;

use super::RecipeResult;
use super::tree::predecessor;
use super::watched::{Between, lock_ref};
use crate::ground::{Ground, LEASE};

/// The predecessor goes after the list was read and before it is watched.
pub(super) async fn gone_as_written(ground: &Ground) -> Result<RecipeResult> {
    let tree = ground.tree().await?;
    let a = tree.create_sequential("lock-").await?;
    let b = tree.create_sequential("lock-").await?;
    let before = predecessor(&tree.children().await?, &b).context("A is before B")?;
    tree.delete(&a).await?;
    // The callback is written for the case that the node is there.
    let (_ignored, watch) = tree.exists(&before).await?;
    let is_first = predecessor(&tree.children().await?, &b).is_none();
    let sleeps = is_first && !tree.has_fired(watch).await?;
    tree.close().await?;
    RecipeResult::new(
        !sleeps,
        "the lock is B's, and B waits for the end of a node that has gone: for ever",
    )
}

/// The holder releases after B's read was answered and before B waits.
pub(super) async fn gone_ours(ground: &Ground) -> Result<RecipeResult> {
    let (locks, passed) = ground.zookeeper_locks().await?;
    let name = LockName::new(fresh())?;
    let a = lock_ref(&name, 1);
    passed.take(&a, LEASE).await?;
    passed.next(Between::LeaveFirst(a)).await;
    let guard = locks.lock(name.as_str()).await?;
    let is_held = guard.is_held();
    let _how_it_stood = guard.release().await?;
    RecipeResult::new(is_held, "B's answer says busy, A lets go, B looks again and holds the lock")
}

/// A foreign node is in the same folder.
pub(super) async fn foreign_as_written(ground: &Ground) -> Result<RecipeResult> {
    let tree = ground.tree().await?;
    tree.create("config").await?;
    let a = tree.create_sequential("lock-").await?;
    let before = predecessor(&tree.children().await?, &a);
    tree.close().await?;
    match before {
        Some(before) => {
            let what = format!("no client holds the lock, and A waits for the end of `{before}`");
            RecipeResult::new(false, what)
        }
        None => RecipeResult::new(true, "A holds the lock"),
    }
}

pub(super) async fn foreign_ours(ground: &Ground) -> Result<RecipeResult> {
    let (others, _) = ground.zookeeper_locks().await?;
    let (locks, _) = ground.zookeeper_locks().await?;
    let name = fresh();
    let beside = ["config", &name[..name.len() - 1], &format!("{name}-"), &format!("{name}/1")];
    let held = others.lock_all(&beside).await?;
    let taken = locks.try_lock(&name).await;
    let is_taken = taken.is_ok();
    drop((held, taken));
    others.settle().await?;
    locks.settle().await?;
    RecipeResult::new(is_taken, "A takes the free lock at once: locks of other names do not count")
}

/// The server creates the node, and the connection is lost before the answer.
pub(super) async fn orphan_as_written(ground: &Ground) -> Result<RecipeResult> {
    let tree = ground.tree().await?;
    let orphan = tree.create_sequential("lock-").await?;
    let a = tree.create_sequential("lock-").await?;
    // Its session lives as long as A does, so it never goes.
    let waits = predecessor(&tree.children().await?, &a).as_ref() == Some(&orphan);
    tree.close().await?;
    RecipeResult::new(!waits, format!("A waits for the end of `{orphan}`, which is its own"))
}

pub(super) async fn orphan_ours(ground: &Ground) -> Result<RecipeResult> {
    let (locks, passed) = ground.zookeeper_locks().await?;
    passed.next(Between::LoseAnswer).await;
    let guard = locks.lock(&fresh()).await?;
    let (asks, is_held) = (passed.passed().asks, guard.is_held());
    let _how_it_stood = guard.release().await?;
    let what = format!("A sends {asks} requests with one id and finds its own lock");
    RecipeResult::new(asks == 2 && is_held, what)
}

/// Returns a name that no other run has.
fn fresh() -> String {
    format!("cron-{:016x}", rand::random::<u64>())
}

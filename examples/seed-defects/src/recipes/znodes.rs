//! A lock of sequential nodes, written by hand with callbacks, and its three defects.

use anyhow::{Context, Result};
use handfast_locks::LockName;

use super::Seen;
use super::tree::{Tree, Watch, predecessor};
use super::watched::{Between, hold};
use crate::ground::{LEASE, Sqlite};

/// The predecessor goes after the list was read and before it is watched.
pub(super) fn gone_as_written() -> Result<Seen> {
    let mut tree = Tree::default();
    let a = tree.create_sequential("lock-");
    let b = tree.create_sequential("lock-");
    let before = predecessor(&tree.children(), &b).context("A is before B")?;
    tree.delete(&a);
    let watch = Watch::default();
    // The callback is written for the case that the node is there.
    let _ignored = tree.exists(&before, &watch);
    let is_first = predecessor(&tree.children(), &b).is_none();
    let sleeps = is_first && !watch.has_fired();
    Seen::new(!sleeps, "the lock is B's, and B waits for the end of a node that has gone: for ever")
}

/// The holder lets go after B's look was answered and before B waits.
pub(super) async fn gone_ours() -> Result<Seen> {
    let ground = Sqlite::new().await?;
    let (locks, passed) = ground.locks(LEASE).await?;
    let a = hold(&LockName::new("cron")?, 1);
    passed.take(&a, LEASE).await?;
    passed.next(Between::LeaveFirst(a)).await;
    let guard = locks.lock("cron").await?;
    Seen::new(guard.is_held(), "B's answer says busy, A lets go, B looks again and holds the lock")
}

/// Somebody else has a node in the same place.
pub(super) fn foreign_as_written() -> Result<Seen> {
    let mut tree = Tree::default();
    tree.create("config");
    let a = tree.create_sequential("lock-");
    match predecessor(&tree.children(), &a) {
        Some(before) => {
            let what = format!("nobody holds the lock, and A waits for the end of `{before}`");
            Seen::new(false, what)
        }
        None => Seen::new(true, "A holds the lock"),
    }
}

pub(super) async fn foreign_ours() -> Result<Seen> {
    let ground = Sqlite::new().await?;
    let (others, _) = ground.locks(LEASE).await?;
    let (locks, _) = ground.locks(LEASE).await?;
    let beside = ["config", "cro", "cron-", "cron/1"];
    let _held = others.lock_all(&beside).await?;
    let taken = locks.try_lock("cron").await;
    let what = "A takes the free lock at once: locks of other names do not count";
    Seen::new(taken.is_ok(), what)
}

/// The server makes the node; the connection is lost before it says so.
pub(super) fn orphan_as_written() -> Result<Seen> {
    let mut tree = Tree::default();
    let orphan = tree.create_sequential("lock-");
    let a = tree.create_sequential("lock-");
    // Its session lives as long as A does, so it never goes.
    let waits = predecessor(&tree.children(), &a).as_ref() == Some(&orphan);
    Seen::new(!waits, format!("A waits for the end of `{orphan}`, which is its own"))
}

pub(super) async fn orphan_ours() -> Result<Seen> {
    let ground = Sqlite::new().await?;
    let (locks, passed) = ground.locks(LEASE).await?;
    passed.next(Between::LoseAnswer).await;
    let guard = locks.lock("cron").await?;
    let (asks, fence) = (passed.passed().asks, guard.fence().number());
    let what = format!("A asks {asks} times with one token and finds its own lock, fence {fence}");
    Seen::new(asks == 2 && fence == 1, what)
}

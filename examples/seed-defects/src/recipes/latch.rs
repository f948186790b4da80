//! An unlock script that calls it a success when there is nothing to unlock.

use anyhow::Result;
use handfast_locks::{Backend, Guarantee, LockRef, Locks, ReleaseOutcome, ReleaseRequest};
use redis::{AsyncCommands, Script};

use super::RecipeResult;
use crate::ground::{Ground, LEASE};

const KEY: &str = "handfast:seed-defects:latch";

const LOCK: &str = "if redis.call('EXISTS', KEYS[1]) == 0 then \
    redis.call('HINCRBY', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return 1 \
    end return 0";

/// If nothing is there, the script wakes the others and succeeds.
const UNLOCK: &str = "if redis.call('EXISTS', KEYS[1]) == 0 then \
    redis.call('PUBLISH', KEYS[1], '0') return 1 end \
    if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end \
    if redis.call('HINCRBY', KEYS[1], ARGV[1], -1) > 0 then return 0 end \
    redis.call('DEL', KEYS[1]) redis.call('PUBLISH', KEYS[1], '0') return 1";

pub(super) async fn as_written(ground: &Ground) -> Result<RecipeResult> {
    let mut redis = ground.redis().await?;
    let () = redis.del(KEY).await?;
    let (lock, unlock) = (Script::new(LOCK), Script::new(UNLOCK));
    let taken: i64 = lock.key(KEY).arg("A").arg(30_000).invoke_async(&mut redis).await?;
    // The lease ends while A works.
    let _: i64 = redis.pexpire(KEY, 0).await?;
    let unlocked: i64 = unlock.key(KEY).arg("A").invoke_async(&mut redis).await?;
    let what = "A's lease has ended under its work, and A's unlock is answered with success";
    RecipeResult::new(!(taken == 1 && unlocked == 1), what)
}

pub(super) async fn ours(ground: &Ground) -> Result<RecipeResult> {
    let backend = ground.redis_locks().await?;
    let locks = Locks::over(ground.redis_locks().await?).guarantee(Guarantee::Efficiency);
    let locks = locks.lease(LEASE).start()?;
    let guard = locks.lock(&format!("seed-defects/latch/{}", std::process::id())).await?;
    // The lock ends at the server while A works.
    let lock_ref = LockRef { name: guard.name().clone(), id: guard.id() };
    backend
        .release(&ReleaseRequest { lock_ref, refuse_late_requests: false, is_uncontended: false })
        .await?;
    let outcome = guard.release().await?;
    RecipeResult::new(
        outcome == ReleaseOutcome::WasLost,
        format!("A's release is answered {outcome:?}"),
    )
}

//! SETNX with the time of expiry as the value. A client that finds it expired takes it over with
//! GETSET.

use anyhow::Result;
use handfast_locks::{Guarantee, LockError, Locks, ReleaseOutcome};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;

use super::RecipeResult;
use crate::ground::{Ground, LEASE};

const KEY: &str = "handfast:seed-defects:getset";

/// Times in milliseconds, by the clients' clocks: the dead holder's expiry, that of B and C, which
/// come at nearly the same moment, and the clock of D, a minute ahead.
const EXPIRED: i64 = 1_000_000;
const UNTIL_B: i64 = 1_060_000;
const UNTIL_C: i64 = 1_060_400;
const NOW_OF_D: i64 = 1_090_500;

/// Tries to take the lock over after a client has read its value, and returns whether it did.
async fn take_over(redis: &mut MultiplexedConnection, read: i64, until: i64) -> Result<bool> {
    let before: i64 = redis.getset(KEY, until).await?;
    Ok(before == read)
}

pub(super) async fn as_written(ground: &Ground) -> Result<RecipeResult> {
    let mut redis = ground.redis().await?;
    let () = redis.set(KEY, EXPIRED).await?;
    let read_by_b: i64 = redis.get(KEY).await?;
    let read_by_c: i64 = redis.get(KEY).await?;
    let b = take_over(&mut redis, read_by_b, UNTIL_B).await?;
    let c = take_over(&mut redis, read_by_c, UNTIL_C).await?;
    let expiry: i64 = redis.get(KEY).await?;
    // B has half a minute left by its own clock, and by every clock but D's.
    let d = expiry < NOW_OF_D && take_over(&mut redis, expiry, NOW_OF_D + 60_000).await?;
    let () = redis.del(KEY).await?;
    let what = format!(
        "B holds the lock; C, who lost, has moved its expiry by {} ms; D, whose clock is a minute \
         ahead, holds it too",
        expiry - UNTIL_B
    );
    RecipeResult::new(!(b && !c && expiry != UNTIL_B && d), what)
}

pub(super) async fn ours(ground: &Ground) -> Result<RecipeResult> {
    let over = Locks::over(ground.redis_locks().await?).guarantee(Guarantee::Efficiency);
    let b = over.lease(LEASE).start()?;
    let name = format!("seed-defects/{}", std::process::id());
    let guard = b.lock(&name).await?;
    let mut refused = true;
    for _client in ["C", "D"] {
        let other =
            Locks::over(ground.redis_locks().await?).guarantee(Guarantee::Efficiency).start()?;
        refused &= matches!(other.try_lock(&name).await, Err(LockError::Busy { .. }));
    }
    let released = guard.release().await? == ReleaseOutcome::Released;
    let what = "C and D are refused and have changed nothing: B holds the lock until it lets go";
    RecipeResult::new(refused && released, what)
}

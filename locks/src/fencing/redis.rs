//! A value in Redis with the token of its last holder beside it.

use redis::aio::ConnectionLike;
use redis::{RedisError, Script};

use crate::error::{BackendError, LockError};
use crate::name::Fence;

/// KEYS: the value's key, the token's. ARGV: the token, and the value for a write. Both keys get no
/// expiry: a token that is forgotten lets an old holder in.
///
/// Tokens are compared as text of equal length, because numbers of Lua are not exact above 2^53.
const CHECK: &str = r"
local function padded(number) return string.rep('0', 20 - #number) .. number end
local seen = redis.call('GET', KEYS[2])
if seen and padded(seen) > padded(ARGV[1]) then return 0 end
";

/// A key in Redis that is written under a lock.
///
/// ```
/// use handfast_locks::fencing::FencedKey;
/// use handfast_locks::{Guard, LockError};
///
/// async fn add(
///     connection: &mut redis::aio::MultiplexedConnection,
///     guard: &Guard,
/// ) -> Result<(), LockError> {
///     let points = FencedKey::new("points:7");
///     let before = points.claim(connection, guard.fence()).await?.unwrap_or_default();
///     let n = String::from_utf8_lossy(&before).parse().unwrap_or(0);
///     points.set(connection, guard.fence(), (n + 1).to_string().as_bytes()).await
/// }
/// ```
#[derive(Clone, Debug)]
pub struct FencedKey {
    value: String,
    fence: String,
}

impl FencedKey {
    /// A key by name. Its token is kept beside it, in the same slot of a cluster.
    #[must_use]
    pub fn new(key: &str) -> Self {
        // A key with a tag of its own is in the slot of its tag, and so is what has the same tag.
        let has_tag = key
            .split_once('{')
            .is_some_and(|(_, rest)| rest.split_once('}').is_some_and(|(tag, _)| !tag.is_empty()));
        let fence = if has_tag { format!("{key}:fence") } else { format!("{{{key}}}:fence") };
        Self { value: key.to_owned(), fence }
    }

    /// Installs the token and reads the value, in one step: before anything is decided on it.
    ///
    /// # Errors
    /// [`LockError::Stale`] if a later holder has been here, [`LockError::Claim`] if Redis failed.
    pub async fn claim(
        &self,
        connection: &mut impl ConnectionLike,
        fence: Fence,
    ) -> Result<Option<Vec<u8>>, LockError> {
        const CLAIM: &str = "redis.call('SET', KEYS[2], ARGV[1]) \
            return { 1, redis.call('GET', KEYS[1]) }";
        let script =
            Script::new(&format!("{}{CLAIM}", CHECK.replace("return 0", "return { 0, false }")));
        let mut call = script.key(&self.value);
        let call = call.key(&self.fence).arg(fence.number());
        let answer: Result<(i64, Option<Vec<u8>>), RedisError> =
            call.invoke_async(connection).await;
        let (passed, value) = answer.map_err(|error| self.failed(error))?;
        self.passed(passed, fence).map(|()| value)
    }

    /// Writes the value, and installs the token if it is not there yet.
    ///
    /// # Errors
    /// [`LockError::Stale`] if a later holder has been here: nothing is written.
    /// [`LockError::Claim`] if Redis failed.
    pub async fn set(
        &self,
        connection: &mut impl ConnectionLike,
        fence: Fence,
        value: &[u8],
    ) -> Result<(), LockError> {
        const SET: &str = "redis.call('SET', KEYS[2], ARGV[1]) \
            redis.call('SET', KEYS[1], ARGV[2]) return 1";
        let script = Script::new(&format!("{CHECK}{SET}"));
        let mut call = script.key(&self.value);
        let call = call.key(&self.fence).arg(fence.number()).arg(value);
        let answer: Result<i64, RedisError> = call.invoke_async(connection).await;
        let passed = answer.map_err(|error| self.failed(error))?;
        self.passed(passed, fence)
    }

    fn passed(&self, passed: i64, fence: Fence) -> Result<(), LockError> {
        if passed == 1 {
            return Ok(());
        }
        Err(LockError::Stale { name: self.value.clone(), fence })
    }

    fn failed(&self, error: RedisError) -> LockError {
        let source = BackendError::passing("Redis failed", error);
        LockError::Claim { name: self.value.clone(), source }
    }
}

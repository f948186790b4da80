//! A value in Redis with the fencing token of its last holder beside it.

use redis::aio::ConnectionLike;
use redis::{RedisError, Script};

use crate::error::{BackendError, LockError};
use crate::name::FencingToken;

/// KEYS: the key of the value, the key of the token. ARGV: the token, and the value for a write.
/// Neither key expires: a token that is forgotten admits an old holder.
///
/// Tokens are compared as text of equal length, because numbers in Lua are not exact above 2^53.
const CHECK: &str = r"
local function padded(number) return string.rep('0', 20 - #number) .. number end
local seen = redis.call('GET', KEYS[2])
if seen and padded(seen) > padded(ARGV[1]) then return 0 end
";

/// A key in Redis that is written under a lock and checks fencing tokens.
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
///     let before = points.claim(connection, guard.fencing_token()).await?.unwrap_or_default();
///     let n = String::from_utf8_lossy(&before).parse().unwrap_or(0);
///     points.set(connection, guard.fencing_token(), (n + 1).to_string().as_bytes()).await
/// }
/// ```
#[derive(Clone, Debug)]
pub struct FencedKey {
    value: String,
    token_key: String,
}

impl FencedKey {
    /// Makes a fenced key. Its token is kept beside it, in the same slot of a cluster.
    #[must_use]
    pub fn new(key: &str) -> Self {
        // A key with a hash tag is in the slot of the tag, and so is every key with the same tag.
        let has_tag = key
            .split_once('{')
            .is_some_and(|(_, rest)| rest.split_once('}').is_some_and(|(tag, _)| !tag.is_empty()));
        let token_key = if has_tag { format!("{key}:fence") } else { format!("{{{key}}}:fence") };
        Self { value: key.to_owned(), token_key }
    }

    /// Installs the token and reads the value in one step, before anything is decided from the
    /// value.
    ///
    /// # Errors
    /// [`LockError::Stale`] if a later holder has claimed the key. [`LockError::Claim`] if Redis
    /// failed.
    pub async fn claim(
        &self,
        connection: &mut impl ConnectionLike,
        fencing_token: FencingToken,
    ) -> Result<Option<Vec<u8>>, LockError> {
        const CLAIM: &str = "redis.call('SET', KEYS[2], ARGV[1]) \
            return { 1, redis.call('GET', KEYS[1]) }";
        let script =
            Script::new(&format!("{}{CLAIM}", CHECK.replace("return 0", "return { 0, false }")));
        let mut call = script.key(&self.value);
        let call = call.key(&self.token_key).arg(fencing_token.number());
        let answer: Result<(i64, Option<Vec<u8>>), RedisError> =
            call.invoke_async(connection).await;
        let (passed, value) = answer.map_err(|error| self.failed(error))?;
        self.passed(passed, fencing_token).map(|()| value)
    }

    /// Writes the value, and installs the token if it is not there yet.
    ///
    /// # Errors
    /// [`LockError::Stale`] if a later holder has claimed the key: nothing is written.
    /// [`LockError::Claim`] if Redis failed.
    pub async fn set(
        &self,
        connection: &mut impl ConnectionLike,
        fencing_token: FencingToken,
        value: &[u8],
    ) -> Result<(), LockError> {
        const SET: &str = "redis.call('SET', KEYS[2], ARGV[1]) \
            redis.call('SET', KEYS[1], ARGV[2]) return 1";
        let script = Script::new(&format!("{CHECK}{SET}"));
        let mut call = script.key(&self.value);
        let call = call.key(&self.token_key).arg(fencing_token.number()).arg(value);
        let answer: Result<i64, RedisError> = call.invoke_async(connection).await;
        let passed = answer.map_err(|error| self.failed(error))?;
        self.passed(passed, fencing_token)
    }

    fn passed(&self, passed: i64, fencing_token: FencingToken) -> Result<(), LockError> {
        if passed == 1 {
            return Ok(());
        }
        Err(LockError::Stale { name: self.value.clone(), fencing_token })
    }

    fn failed(&self, error: RedisError) -> LockError {
        let source = BackendError::passing("Redis failed", error);
        LockError::Claim { name: self.value.clone(), source }
    }
}

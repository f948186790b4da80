//! The fence for services whose data is in Redis: fence and work in one script.
//!
//! Redis runs a script alone and persists all of it or none, so the caller's commands go into the
//! same script as the fence. The script does not know the decision table: it is sent what to do in
//! each state, and answers in which state it found the branch.
//!
//! A script that fails half-way is not undone, since Redis cannot do that. The fence is as durable
//! as the data beside it: a fail-over of Redis may lose both.

use std::fmt;
use std::time::Duration;

use handfast_rm_core::fence::{FenceState, Operation, Pass, decide};
use redis::aio::ConnectionLike;
use redis::{FromRedisValue, Script, ToRedisArgs};

use super::error::FenceError;
use super::{Fence, Fenced};

/// The prefix of a fence's key, before the name of the branch.
const PREFIX: &str = "handfast:fence:";

/// How long a final fence is kept by default.
const RETENTION: Duration = Duration::from_secs(86_400);

/// Calls the work that stands before it as a function, so that its KEYS and ARGV are the caller's
/// own, and it can return where it likes.
///
/// ARGV: the five steps, by the state found (absent, tried, confirmed, cancelled, barred); the
/// action; how long a final fence is kept, in milliseconds; the caller's. A step is `run` or `skip`
/// and the number of the next state, or 0.
const FRAME: &str = r"
local keys, arguments = {}, {}
for at = 2, #KEYS do keys[at - 1] = KEYS[at] end
for at = 8, #ARGV do arguments[at - 7] = ARGV[at] end
local found = tonumber(redis.call('HGET', KEYS[1], 'status') or 0)
local step = ARGV[found + 1]
if not step then return redis.error_reply('ERR fence holds status ' .. found) end
local verb, state = string.match(step, '^(%a+) (%d)$')
local result = false
if verb == 'run' then
  result = work(keys, arguments)
  -- An error that is returned and not raised: the work did not happen, and neither does the fence.
  if type(result) == 'table' and result.err then return result end
  if result == nil then result = false end
end
if state ~= '0' then
  redis.call('HSET', KEYS[1], 'status', state, 'action', ARGV[6])
  if state ~= '1' then redis.call('PEXPIRE', KEYS[1], ARGV[7]) end
end
return { found, result }
";

/// Work in Lua that runs under a fence.
///
/// It is written as for `EVAL`: `KEYS` and `ARGV` are those given to [`key`](Self::key) and
/// [`arg`](Self::arg), and what it returns comes back. **It must look before it writes**: Redis
/// does not take back what a script has written before it fails. `return redis.error_reply(...)`
/// says that nothing was done; the fence then stays as it was.
///
/// ```
/// use handfast::fence::{Fence, FenceError, Fenced, FencedScript, Operation};
///
/// async fn try_debit(
///     connection: &mut redis::aio::MultiplexedConnection,
///     fence: &Fence,
/// ) -> Result<Fenced<i64>, FenceError> {
///     let hold = FencedScript::new(
///         r"
///         local left = tonumber(redis.call('HGET', KEYS[1], 'free') or 0) - tonumber(ARGV[1])
///         if left < 0 then return redis.error_reply('TOO-FEW points') end
///         redis.call('HSET', KEYS[1], 'free', left)
///         redis.call('HINCRBY', KEYS[1], 'held', ARGV[1])
///         return left
///         ",
///     );
///     hold.key("points:7").arg(30).run(connection, fence, Operation::Try).await
/// }
/// ```
#[derive(Clone, Debug)]
pub struct FencedScript {
    script: Script,
    retention: Duration,
}

impl FencedScript {
    /// Takes the work. The text goes to a server once; make one value of it and keep it.
    #[must_use]
    pub fn new(lua: &str) -> Self {
        // On one line with the work's first, so that line numbers in errors are the work's own.
        let text = format!("local work = function(KEYS, ARGV) {lua}\nend{FRAME}");
        Self { script: Script::new(&text), retention: RETENTION }
    }

    /// How long the fence is kept after the branch was confirmed, cancelled or barred, a day unless
    /// set. Too short, and an operation that is repeated later finds no fence: a confirm is
    /// answered with [`FenceError::NotTried`], and a late try runs. Too long costs memory.
    #[must_use]
    pub fn retention(mut self, retention: Duration) -> Self {
        self.retention = retention;
        self
    }

    /// A call with a key.
    pub fn key(&self, key: impl ToRedisArgs) -> FencedCall<'_> {
        self.call().key(key)
    }

    /// A call with an argument.
    pub fn arg(&self, argument: impl ToRedisArgs) -> FencedCall<'_> {
        self.call().arg(argument)
    }

    /// A call without keys and arguments.
    pub fn call(&self) -> FencedCall<'_> {
        FencedCall { script: self, keys: Vec::new(), arguments: Vec::new(), slot: String::new() }
    }
}

/// A call of a [`FencedScript`], to be given its keys and arguments.
#[must_use = "a call does nothing until it is run"]
pub struct FencedCall<'s> {
    script: &'s FencedScript,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
    slot: String,
}

impl FencedCall<'_> {
    /// Adds a key: `KEYS` of the work, in order.
    pub fn key(mut self, key: impl ToRedisArgs) -> Self {
        key.write_redis_args(&mut self.keys);
        self
    }

    /// Adds an argument: `ARGV` of the work, in order.
    pub fn arg(mut self, argument: impl ToRedisArgs) -> Self {
        argument.write_redis_args(&mut self.arguments);
        self
    }

    /// For Redis Cluster, where a script may touch one hash slot only: the hash tag of the keys.
    /// **All operations of one branch must name the same one**, because it is part of the fence's
    /// own key. Without it the fence's key has no hash tag.
    pub fn slot(mut self, hash_tag: &str) -> Self {
        self.slot = format!("{{{hash_tag}}}:");
        self
    }

    /// Runs the work if the fence lets it, and records that, in one script.
    ///
    /// # Errors
    /// The refusals [`Barred`](FenceError::Barred), [`NotTried`](FenceError::NotTried) and
    /// [`Contradicted`](FenceError::Contradicted); or [`Redis`](FenceError::Redis), which is also
    /// what the work returns or raises.
    pub async fn run<T: FromRedisValue>(
        &self,
        connection: &mut impl ConnectionLike,
        fence: &Fence,
        operation: Operation,
    ) -> Result<Fenced<T>, FenceError> {
        let mut call = self.script.script.prepare_invoke();
        // The script takes the fence from KEYS[1] and the steps by position, so the caller's own
        // keys and arguments come behind them.
        call.key(format!("{PREFIX}{}{}:{}", self.slot, fence.xid, fence.branch));
        for state in [None].into_iter().chain(FenceState::ALL.map(Some)) {
            call.arg(step(state, operation));
        }
        let kept_ms = u64::try_from(self.script.retention.as_millis()).unwrap_or(u64::MAX);
        call.arg(&*fence.action).arg(kept_ms.clamp(1, KEPT_MS_MAX));
        call.key(&self.keys).arg(&self.arguments);
        let (found, result): (i64, redis::Value) = call.invoke_async(connection).await?;
        Ok(match fence.pass(FenceState::from_number(found), operation)? {
            Pass::Run => Fenced::Ran(T::from_redis_value(result).map_err(redis::RedisError::from)?),
            Pass::AlreadyDone => Fenced::AlreadyDone,
            Pass::Empty => Fenced::Empty,
        })
    }
}

/// Redis refuses times that do not fit its clock: a thousand years are as good as for ever.
const KEPT_MS_MAX: u64 = 1_000 * 365 * 86_400 * 1_000;

/// The action of the script when it finds a state.
fn step(state: Option<FenceState>, operation: Operation) -> String {
    let decision = decide(state, operation);
    let verb = if decision.verdict == Ok(Pass::Run) { "run" } else { "skip" };
    format!("{verb} {}", decision.next.map_or(0, FenceState::number))
}

impl fmt::Debug for FencedCall<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without keys and arguments: values do not belong in logs.
        f.debug_struct("FencedCall").field("script", self.script).finish_non_exhaustive()
    }
}

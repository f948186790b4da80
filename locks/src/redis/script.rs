//! What Redis does for a lock. A script runs alone, and all of it lasts or none.
//!
//! KEYS: the lock, a hash of `owner`, `label` and `fence` that expires with the lease; the counter
//! of fences, which never does; the queue, tokens by time of arrival; the same tokens by until when
//! they are alive; a mark if the token is barred.
//!
//! Answers: a positive number if granted or freed, else 0; the holder's token and label; what is
//! left of the lease; how many wait longer; for a lock that is granted, whether its fence is what
//! several nodes have agreed on, for one that is not, the caller's time of arrival, if it waits.

/// ARGV: token, lease, label, whether to queue, how long a waiter is alive, when to look again; the
/// fence and the time of arrival that several nodes have agreed on, or nothing.
pub(super) const ASK: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local token = ARGV[1]
if redis.call('EXISTS', KEYS[5]) == 1 then return { 0, '', '', 0, 1, 0 } end
local owner = redis.call('HGET', KEYS[1], 'owner')
if owner == token then
  -- Asked twice: the same answer.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  if ARGV[7] ~= '' then
    redis.call('HSET', KEYS[1], 'fence', ARGV[7], 'is_agreed', '1')
    if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[7]) then
      redis.call('SET', KEYS[2], ARGV[7])
    end
  end
  local is_agreed = redis.call('HGET', KEYS[1], 'is_agreed') or '0'
  return { tonumber(redis.call('HGET', KEYS[1], 'fence')), '', '', 0, 0, tonumber(is_agreed) }
end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now)) do
  redis.call('ZREM', KEYS[3], dead)
  redis.call('ZREM', KEYS[4], dead)
end
if not owner then
  local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
  if not first or first == token then
    -- Below 2^53 for two centuries, so that Lua's numbers are exact.
    local clock = time[1] * 1000000 + time[2]
    local fence = redis.call('INCR', KEYS[2])
    if fence < clock then
      fence = clock
      redis.call('SET', KEYS[2], string.format('%.0f', fence))
    end
    redis.call('HSET', KEYS[1], 'owner', token, 'label', ARGV[3],
      'fence', string.format('%.0f', fence))
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    redis.call('ZREM', KEYS[3], token)
    redis.call('ZREM', KEYS[4], token)
    return { fence, '', '', 0, 0, 0 }
  end
end
if ARGV[4] == '1' then
  if ARGV[8] ~= '' then
    redis.call('ZADD', KEYS[3], ARGV[8], token)
  else
    redis.call('ZADD', KEYS[3], 'NX', string.format('%.0f', time[1] * 1000000 + time[2]), token)
  end
  redis.call('ZADD', KEYS[4], string.format('%.0f', now + ARGV[5]), token)
  redis.call('PEXPIRE', KEYS[3], ARGV[5] * 2)
  redis.call('PEXPIRE', KEYS[4], ARGV[5] * 2)
end
local ahead = redis.call('ZRANK', KEYS[3], token) or redis.call('ZCARD', KEYS[3])
local left = owner and redis.call('PTTL', KEYS[1]) or tonumber(ARGV[6])
local arrival = tonumber(redis.call('ZSCORE', KEYS[3], token) or '0')
return { 0, owner or '', redis.call('HGET', KEYS[1], 'label') or '', left, ahead, arrival }
";

/// KEYS: locks. ARGV: lease, a token for each. A lock that is gone or another's stays so.
pub(super) const RENEW: &str = r"
local held = {}
for at, key in ipairs(KEYS) do
  if redis.call('HGET', key, 'owner') == ARGV[at + 1] then
    redis.call('PEXPIRE', key, ARGV[1])
    held[at] = 1
  else
    held[at] = 0
  end
end
return held
";

/// ARGV: token, whether a request of it may still come, how long to refuse it then, the channels'
/// prefix.
pub(super) const LEAVE: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local token = ARGV[1]
if ARGV[2] == '1' then redis.call('SET', KEYS[5], 1, 'PX', ARGV[3]) end
redis.call('ZREM', KEYS[3], token)
redis.call('ZREM', KEYS[4], token)
local owner = redis.call('HGET', KEYS[1], 'owner')
local freed = 0
if owner == token then
  redis.call('DEL', KEYS[1])
  owner = false
  freed = 1
end
if owner then
  return { 0, owner, redis.call('HGET', KEYS[1], 'label'), redis.call('PTTL', KEYS[1]), 0, 0 }
end
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now)) do
  redis.call('ZREM', KEYS[3], dead)
  redis.call('ZREM', KEYS[4], dead)
end
local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
if first then redis.call('PUBLISH', ARGV[4] .. string.match(first, '^%x+'), first) end
return { freed, '', '', 0, 0, 0 }
";

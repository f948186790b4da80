//! The Redis scripts of a lock. A script runs alone, and is stored as a whole or not at all.
//!
//! KEYS: the lock, a hash that expires with the lease. Its one field is the id of the exclusive
//! holder. The value is the fencing token that several nodes have agreed on, or `-`, then a space
//! and the holder's label; the counter of fencing tokens, which never expires; the queue, ids by
//! time of arrival; the same ids by the time until which they are alive; barred ids, by the time
//! until which they are refused; shared holders, ids by the end of their lease; their labels, and
//! in the field without a name the number of permits; the fencing token that they have in common,
//! which is deleted with the last of them.
//!
//! An exclusive holder has the fencing token at which the counter stands, unless one was agreed on:
//! the counter goes on only when another acquisition gets the lock. As long as there may be a
//! queue, barred ids or shared holders, the counter is *marked* with a `~` in front; as long as
//! there may be a queue, so is the id of the holder. The marks tell the short ways, [`TAKE_ONE`],
//! [`BATCH`] and `HDEL`, that a lock needs the full scripts, which set and remove the marks. State
//! that has expired by itself leaves its mark behind until one of the full scripts runs.
//!
//! Replies of the full scripts: a positive number if granted or freed, a negative one if others
//! hold permits of that number, else 0; the holder's id and label; what is left of the lease; how
//! many have waited longer; for a lock that is granted, whether its fencing token is what several
//! nodes have agreed on, and for one that is not, the caller's time of arrival if it waits.

/// Takes a lock without holders, waiters and barred ids, in exclusive mode. KEYS: the lock and the
/// counter. ARGV: the id, the value to store with it, the lease. Returns the fencing token, or 0
/// with everything unchanged: then [`ACQUIRE`] is needed. One command reads the counter and sets
/// it, which mostly is right. A counter that is marked, or ahead of the clock, is put back.
pub(super) const TAKE_ONE: &str = r"
if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
-- The same rule as in next_fence().
local time = redis.call('TIME')
local fence = time[1] * 1000000 + time[2]
local last = redis.pcall('GETSET', KEYS[2], string.format('%.0f', fence))
if last then
  if type(last) ~= 'string' then return 0 end
  if (tonumber(last) or fence) >= fence then
    redis.call('SET', KEYS[2], last)
    return 0
  end
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return fence
";

/// Takes several locks as [`TAKE_ONE`] does, reading the clock once, and frees several that have an
/// exclusive holder and no waiter. KEYS: the lock and the counter of each. ARGV: for each the id,
/// the value to store with it and the lease, or the id and two empty strings to free it. Returns
/// for each the fencing token or 1, or 0 with everything unchanged: then [`ACQUIRE`] or [`RELEASE`]
/// is needed, which also report what is wrong if a key has another type.
pub(super) const BATCH: &str = r"
local fence, counter_says
local function look_at_clock()
  local time = redis.call('TIME')
  fence = time[1] * 1000000 + time[2]
  counter_says = string.format('%.0f', fence)
end
local function take(lock, counter, token, says, lease)
  if redis.call('EXISTS', lock) == 1 then return 0 end
  if not fence then look_at_clock() end
  local last = redis.pcall('GETSET', counter, counter_says)
  if last then
    if type(last) ~= 'string' then return 0 end
    if (tonumber(last) or fence) >= fence then
      redis.call('SET', counter, last)
      return 0
    end
  end
  redis.call('HSET', lock, token, says)
  redis.call('PEXPIRE', lock, lease)
  return fence
end
local function free(lock, token)
  local freed = redis.pcall('HDEL', lock, token)
  return type(freed) == 'number' and freed or 0
end
local answers = {}
for at = 1, #KEYS / 2 do
  local lock, counter = KEYS[at * 2 - 1], KEYS[at * 2]
  local token, says, lease = ARGV[at * 3 - 2], ARGV[at * 3 - 1], ARGV[at * 3]
  answers[at] = lease == '' and free(lock, token) or take(lock, counter, token, says, lease)
end
return answers
";

/// The common beginning of the full scripts.
pub(super) const COMMON: &str = r"
local token = ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = redis.call('HGETALL', KEYS[1])
local owner = string.match(held[1] or '', '^~?(.+)$')
local agreed, label = string.match(held[2] or '', '^(%S+) (.*)$')
local function forget_ended()
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now)) do
    redis.call('ZREM', KEYS[3], dead)
    redis.call('ZREM', KEYS[4], dead)
  end
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', now)
  for _, ended in ipairs(redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', now)) do
    redis.call('ZREM', KEYS[6], ended)
    redis.call('HDEL', KEYS[7], ended)
  end
end
local function wake_next(channel)
  local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
  if first then redis.call('PUBLISH', channel .. string.match(first, '^%x+'), first) end
end
-- The holder, its label, and what is left of its lease.
local function holder()
  if owner then return owner, label, redis.call('PTTL', KEYS[1]) end
  local first = redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')
  if first[1] then return first[1], redis.call('HGET', KEYS[7], first[1]), first[2] - now end
  return false, '', 0
end
local function last_fence()
  return tonumber(string.match(redis.call('GET', KEYS[2]) or '0', '%d+'))
end
local function marked(value, is_marked)
  return (is_marked and '~' or '') .. string.match(value, '[^~]+')
end
-- Called at the end of every script that may change what the marks tell.
local function set_marks()
  local is_awaited = redis.call('EXISTS', KEYS[3]) > 0
  local is_busy = is_awaited or redis.call('EXISTS', KEYS[5], KEYS[6], KEYS[8]) > 0
  local counter = redis.call('GET', KEYS[2]) or '0'
  local counter_says = marked(counter, is_busy)
  if counter_says ~= counter then redis.call('SET', KEYS[2], counter_says) end
  local field = redis.call('HKEYS', KEYS[1])[1]
  local field_says = field and marked(field, is_awaited)
  if field_says ~= field then
    redis.call('HSET', KEYS[1], field_says, redis.call('HGET', KEYS[1], field))
    redis.call('HDEL', KEYS[1], field)
  end
end
";

/// ARGV: the id, the lease, the label, whether to queue, how long a waiter is alive, when to retry;
/// the fencing token and the time of arrival that several nodes have agreed on, or empty strings;
/// the number of permits, or an empty string for an exclusive lock; the prefix of the channels.
pub(super) const ACQUIRE: &str = r"
local parts = tonumber(ARGV[9])
-- Above the last one and never below the clock, also after a loss of all data.
local function next_fence()
  -- Below 2^53 for two centuries, so that Lua's numbers are exact.
  local fence = math.max(time[1] * 1000000 + time[2], last_fence() + 1)
  redis.call('SET', KEYS[2], string.format('%.0f', fence))
  return fence
end
local function hold_all(agreed, label)
  redis.call('DEL', KEYS[1])
  redis.call('HSET', KEYS[1], token, agreed .. ' ' .. label)
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
local function hold_part(fence)
  redis.call('ZADD', KEYS[6], string.format('%.0f', now + ARGV[2]), token)
  redis.call('HSET', KEYS[7], token, ARGV[3], '', ARGV[9])
  redis.call('SET', KEYS[8], string.format('%.0f', fence))
  for at = 6, 7 do
    if redis.call('PTTL', KEYS[at]) < tonumber(ARGV[2]) then
      redis.call('PEXPIRE', KEYS[at], ARGV[2])
    end
  end
end
-- A repeated request gets the same answer.
local function hold_still()
  local fence = tonumber(agreed) or last_fence()
  -- Never a smaller one: others may have agreed on it before this node granted the lock.
  if ARGV[7] ~= '' and tonumber(ARGV[7]) >= fence then
    agreed = ARGV[7]
    fence = tonumber(agreed)
    if last_fence() < fence then redis.call('SET', KEYS[2], agreed) end
  end
  -- The counter was deleted.
  if fence == 0 then fence = next_fence() end
  if parts then
    -- The permits that this holder does not keep are free.
    hold_part(fence)
    redis.call('DEL', KEYS[1])
    wake_next(ARGV[10])
  else
    hold_all(agreed, label)
  end
  return { fence, '', '', 0, 0, agreed == '-' and 0 or 1 }
end
local function ask()
  forget_ended()
  if redis.call('ZSCORE', KEYS[5], token) then return { 0, '', '', 0, 1, 0 } end
  if owner == token then return hold_still() end
  local owner, label, left = holder()
  local count = redis.call('ZCARD', KEYS[6])
  if redis.call('ZSCORE', KEYS[6], token) then
    local fence = tonumber(redis.call('GET', KEYS[8]))
    if parts then hold_part(fence) end
    return { fence, '', '', 0, 0, 0 }
  end
  if parts and count > 0 and redis.call('HGET', KEYS[7], '') ~= ARGV[9] then
    return { -tonumber(redis.call('HGET', KEYS[7], '')), '', '', 0, 0, 0 }
  end
  if not owner or (parts and count > 0 and count < parts) then
    local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
    if not first or first == token then
      local fence = parts and tonumber(redis.call('GET', KEYS[8]) or nil)
      if not fence then fence = next_fence() end
      redis.call('ZREM', KEYS[3], token)
      redis.call('ZREM', KEYS[4], token)
      if parts then
        hold_part(fence)
        if count + 1 < parts then wake_next(ARGV[10]) end
      else
        redis.call('DEL', KEYS[8])
        hold_all('-', ARGV[3])
      end
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
  if not owner then left = tonumber(ARGV[6]) end
  local arrival = tonumber(redis.call('ZSCORE', KEYS[3], token) or '0')
  return { 0, owner or '', label, left, ahead, arrival }
end
local answer = ask()
set_marks()
return answer
";

/// KEYS: the lock, its shared holders and their labels, for each. ARGV: the lease, and an id for
/// each. A lock that is gone, or that another acquisition holds, stays so.
pub(super) const RENEW: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = {}
for at = 1, #KEYS / 3 do
  local lock, shares, labels = KEYS[at * 3 - 2], KEYS[at * 3 - 1], KEYS[at * 3]
  local token = ARGV[at + 1]
  held[at] = 0
  if redis.call('HEXISTS', lock, token) + redis.call('HEXISTS', lock, '~' .. token) > 0 then
    redis.call('PEXPIRE', lock, ARGV[1])
    held[at] = 1
  elseif tonumber(redis.call('ZSCORE', shares, token) or '0') > now then
    redis.call('ZADD', shares, string.format('%.0f', now + ARGV[1]), token)
    for _, key in ipairs({ shares, labels }) do
      if redis.call('PTTL', key) < tonumber(ARGV[1]) then redis.call('PEXPIRE', key, ARGV[1]) end
    end
    held[at] = 1
  end
end
return held
";

/// ARGV: the id, whether a request with it may still arrive, how long to refuse it then, the prefix
/// of the channels. Waiters that have died are removed before the next one is woken: a wake-up of a
/// dead one would cost the others a heartbeat.
pub(super) const RELEASE: &str = r"
if ARGV[2] == '1' then
  redis.call('ZADD', KEYS[5], string.format('%.0f', now + ARGV[3]), token)
  redis.call('PEXPIRE', KEYS[5], ARGV[3])
end
local function leave()
  redis.call('ZREM', KEYS[3], token)
  redis.call('ZREM', KEYS[4], token)
  forget_ended()
  local holder, label, left = holder()
  local freed = 0
  if owner == token then
    redis.call('DEL', KEYS[1])
    freed = 1
  elseif redis.call('ZREM', KEYS[6], token) == 1 then
    redis.call('HDEL', KEYS[7], token)
    if redis.call('EXISTS', KEYS[6]) == 0 then redis.call('DEL', KEYS[8]) end
    freed = 1
  elseif owner then
    return { 0, owner, label, left, 0, 0 }
  end
  wake_next(ARGV[4])
  return { freed, holder or '', label, left, 0, 0 }
end
local answer = leave()
set_marks()
return answer
";

//! What Redis does for a lock. A script runs alone, and all of it lasts or none.
//!
//! KEYS: the lock, a hash of `owner`, `label` and `fence` that expires with the lease; the counter
//! of fences, which never does; the queue, tokens by time of arrival; the same tokens by until when
//! they are alive; a mark if the token is barred; those who hold parts, tokens by until when; their
//! labels, and in the field without a name how many parts there are; the fence that they have in
//! common, which goes when somebody gets all.
//!
//! Answers: a positive number if granted or freed, a negative one if others hold that many parts,
//! else 0; the holder's token and label; what is left of the lease; how many wait longer; for a
//! lock that is granted, whether its fence is what several nodes have agreed on, for one that is
//! not, the caller's time of arrival, if it waits.

/// In front of the scripts for one lock: time, and what has ended by then.
pub(super) const COMMON: &str = r"
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function forget_ended()
  for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now)) do
    redis.call('ZREM', KEYS[3], dead)
    redis.call('ZREM', KEYS[4], dead)
  end
  for _, ended in ipairs(redis.call('ZRANGEBYSCORE', KEYS[6], '-inf', now)) do
    redis.call('ZREM', KEYS[6], ended)
    redis.call('HDEL', KEYS[7], ended)
  end
end
local function wake_next(channel)
  local first = redis.call('ZRANGE', KEYS[3], 0, 0)[1]
  if first then redis.call('PUBLISH', channel .. string.match(first, '^%x+'), first) end
end
-- Who holds it, his label, what is left of his lease.
local function holder()
  local owner = redis.call('HGET', KEYS[1], 'owner')
  if owner then
    return owner, redis.call('HGET', KEYS[1], 'label'), redis.call('PTTL', KEYS[1])
  end
  local first = redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')
  if first[1] then return first[1], redis.call('HGET', KEYS[7], first[1]), first[2] - now end
  return false, '', 0
end
";

/// In front of [`ASK`], and enough for a lock as it mostly is: held by nobody, waited for by
/// nobody, barred to nobody and without parts, asked for as a whole. The rest of the script would
/// do the same with three times as many commands.
pub(super) const ASK_FREE: &str = r"
local token = ARGV[1]
local time = redis.call('TIME')
-- Above the one before, and never below the clock: also after a loss of all data.
local function next_fence()
  -- Below 2^53 for two centuries, so that Lua's numbers are exact.
  local fence = time[1] * 1000000 + time[2]
  local last = tonumber(redis.call('GETSET', KEYS[2], string.format('%.0f', fence)) or '0')
  if last >= fence then
    fence = last + 1
    redis.call('SET', KEYS[2], string.format('%.0f', fence))
  end
  return fence
end
local function hold_all(fence)
  redis.call('HSET', KEYS[1], 'owner', token, 'label', ARGV[3],
    'fence', string.format('%.0f', fence))
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if ARGV[9] == '' and redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5], KEYS[6], KEYS[8]) == 0 then
  local fence = next_fence()
  hold_all(fence)
  return { fence, '', '', 0, 0, 0 }
end
";

/// ARGV: token, lease, label, whether to queue, how long a waiter is alive, when to look again; the
/// fence and the time of arrival that several nodes have agreed on, or nothing; how many parts one
/// is asked of, or nothing for all; the channels' prefix.
pub(super) const ASK: &str = r"
local parts = tonumber(ARGV[9])
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
if redis.call('EXISTS', KEYS[5]) == 1 then return { 0, '', '', 0, 1, 0 } end
forget_ended()
local owner, label, left = holder()
local count = redis.call('ZCARD', KEYS[6])
if redis.call('HGET', KEYS[1], 'owner') == token then
  -- Asked twice: the same answer.
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  if ARGV[7] ~= '' then
    redis.call('HSET', KEYS[1], 'fence', ARGV[7], 'is_agreed', '1')
    if tonumber(redis.call('GET', KEYS[2]) or '0') < tonumber(ARGV[7]) then
      redis.call('SET', KEYS[2], ARGV[7])
    end
  end
  local is_agreed = redis.call('HGET', KEYS[1], 'is_agreed') or '0'
  local fence = tonumber(redis.call('HGET', KEYS[1], 'fence'))
  if parts then
    -- All that he does not keep is free.
    hold_part(fence)
    redis.call('DEL', KEYS[1])
    wake_next(ARGV[10])
  end
  return { fence, '', '', 0, 0, tonumber(is_agreed) }
end
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
      hold_all(fence)
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
";

/// KEYS: of each lock itself, those who hold parts, their labels. ARGV: lease, a token for each. A
/// lock that is gone or another's stays so.
pub(super) const RENEW: &str = r"
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = {}
for at = 1, #KEYS / 3 do
  local lock, shares, labels = KEYS[at * 3 - 2], KEYS[at * 3 - 1], KEYS[at * 3]
  local token = ARGV[at + 1]
  held[at] = 0
  if redis.call('HGET', lock, 'owner') == token then
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

/// In front of [`LEAVE`], and enough for a lock as it mostly is when it is released: held as a
/// whole by who lets it go, waited for by nobody, and no request of its token on the way.
pub(super) const LEAVE_HELD: &str = r"
local token = ARGV[1]
if ARGV[2] ~= '1' and redis.call('HGET', KEYS[1], 'owner') == token
  and redis.call('EXISTS', KEYS[3], KEYS[6]) == 0 then
  redis.call('DEL', KEYS[1])
  return { 1, '', '', 0, 0, 0 }
end
local time = redis.call('TIME')
";

/// ARGV: token, whether a request of it may still come, how long to refuse it then, the channels'
/// prefix.
pub(super) const LEAVE: &str = r"
if ARGV[2] == '1' then redis.call('SET', KEYS[5], 1, 'PX', ARGV[3]) end
redis.call('ZREM', KEYS[3], token)
redis.call('ZREM', KEYS[4], token)
forget_ended()
local owner, label, left = holder()
local freed = 0
if redis.call('HGET', KEYS[1], 'owner') == token then
  redis.call('DEL', KEYS[1])
  freed = 1
elseif redis.call('ZREM', KEYS[6], token) == 1 then
  redis.call('HDEL', KEYS[7], token)
  freed = 1
elseif redis.call('EXISTS', KEYS[1]) == 1 then
  return { 0, owner, label, left, 0, 0 }
end
wake_next(ARGV[4])
return { freed, owner or '', label, left, 0, 0 }
";

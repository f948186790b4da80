//! What Redis does for a lock. A script runs alone, and all of it lasts or none.
//!
//! KEYS: the lock, which says who holds all of it and expires with the lease: his token, the fence
//! that several nodes have agreed on for it or `-`, and his label, with spaces in between; the
//! counter of fences, which never expires; the queue, tokens by time of arrival; the same tokens by
//! until when they are alive; tokens that are refused, by until when; those who hold parts, tokens
//! by until when; their labels, and in the field without a name how many parts there are; the fence
//! that they have in common, which goes with the last of them.
//!
//! Who holds all has the fence at which the counter stands, unless one was agreed on: it goes on
//! only when somebody else gets the lock. As long as there may be anything of a queue, of refused
//! tokens or of parts, the counter is *marked* with a `~` in front. The short scripts,
//! [`TAKE_ONE`], [`FREE_ONE`] and [`SEVERAL`], see by it that a lock is none of theirs; the others
//! set and remove it. What has expired by itself leaves the mark behind until one of them looks.
//!
//! Answers, but for the short ones: a positive number if granted or freed, a negative one if others
//! hold that many parts, else 0; the holder's token and label; what is left of the lease; how many
//! wait longer; for a lock that is granted, whether its fence is what several nodes have agreed on,
//! for one that is not, the caller's time of arrival, if it waits.

/// What takes a lock that is held by nobody, waited for by nobody, barred to nobody and without
/// parts, as a whole: its fence, or 0 with everything as it was.
const TAKE_STEP: &str = r"
local fence, counter_says
-- As next_fence(), once for all locks of the call.
local function look_at_clock()
  local time = redis.call('TIME')
  fence = time[1] * 1000000 + time[2]
  counter_says = string.format('%.0f', fence)
end
local function take(lock, counter, holder, lease)
  if not redis.call('SET', lock, holder, 'NX', 'PX', lease) then return 0 end
  if not fence then look_at_clock() end
  local last = redis.call('GETSET', counter, counter_says) or '0'
  if (tonumber(last) or fence) < fence then return fence end
  redis.call('SET', counter, last)
  redis.call('DEL', lock)
  return 0
end
";

/// What frees a lock that its holder holds as a whole and of which there is nothing else: 1, or 0
/// with everything as it was.
const FREE_STEP: &str = r"
local function free(lock, counter, holder)
  local held = redis.call('GET', lock)
  if not held or string.sub(held, 1, #holder) ~= holder then return 0 end
  if not tonumber(redis.call('GET', counter)) then return 0 end
  return redis.call('DEL', lock)
end
";

/// Where a step fails, everything that is wrong with the lock is told by [`ASK`] or [`LEAVE`].
const ATTEMPT: &str = r"
local function attempt(step, ...)
  local is_done, answer = pcall(step, ...)
  return is_done and answer or 0
end
";

/// Takes one lock. KEYS: the lock itself and the counter. ARGV: what it is to say and the lease.
/// Answers the fence, or 0: then it takes [`ASK`].
pub(super) const TAKE_ONE: [&str; 3] =
    [TAKE_STEP, ATTEMPT, "return attempt(take, KEYS[1], KEYS[2], ARGV[1], ARGV[2])"];

/// Frees one lock. KEYS: the lock itself and the counter. ARGV: the token with a space. Answers 1
/// when it is free, or 0: then it takes [`LEAVE`].
pub(super) const FREE_ONE: [&str; 3] =
    [FREE_STEP, ATTEMPT, "return attempt(free, KEYS[1], KEYS[2], ARGV[1])"];

/// Takes and frees several. KEYS: of each lock itself and the counter. ARGV: for each what it is to
/// say and the lease, or, to free it, the token with a space and nothing. Answers for each as
/// [`TAKE_ONE`] and [`FREE_ONE`] do; one lock whose keys are something else does not keep the
/// others.
pub(super) const SEVERAL: [&str; 4] = [
    TAKE_STEP,
    FREE_STEP,
    ATTEMPT,
    r"
local answers = {}
for at = 1, #KEYS, 2 do
  local step = ARGV[at + 1] == '' and free or take
  answers[#answers + 1] = attempt(step, KEYS[at], KEYS[at + 1], ARGV[at], ARGV[at + 1])
end
return answers
",
];

/// In front of the scripts for one lock: what there is of it.
pub(super) const COMMON: &str = r"
local token = ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local owner, agreed, label = string.match(redis.call('GET', KEYS[1]) or '', '^(%S+) (%S+) (.*)$')
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
-- Who holds it, his label, what is left of his lease.
local function holder()
  if owner then return owner, label, redis.call('PTTL', KEYS[1]) end
  local first = redis.call('ZRANGE', KEYS[6], 0, 0, 'WITHSCORES')
  if first[1] then return first[1], redis.call('HGET', KEYS[7], first[1]), first[2] - now end
  return false, '', 0
end
local function last_fence()
  return tonumber(string.match(redis.call('GET', KEYS[2]) or '0', '%d+'))
end
-- At the end of every script that may change what the mark is about.
local function mark_counter()
  local counter = redis.call('GET', KEYS[2]) or '0'
  local marked = string.match(counter, '%d+')
  if redis.call('EXISTS', KEYS[3], KEYS[5], KEYS[6], KEYS[8]) > 0 then marked = '~' .. marked end
  if marked ~= counter then redis.call('SET', KEYS[2], marked) end
end
";

/// ARGV: token, lease, label, whether to queue, how long a waiter is alive, when to look again; the
/// fence and the time of arrival that several nodes have agreed on, or nothing; how many parts one
/// is asked of, or nothing for all; the channels' prefix.
pub(super) const ASK: &str = r"
local parts = tonumber(ARGV[9])
-- Above the one before, and never below the clock: also after a loss of all data.
local function next_fence()
  -- Below 2^53 for two centuries, so that Lua's numbers are exact.
  local fence = math.max(time[1] * 1000000 + time[2], last_fence() + 1)
  redis.call('SET', KEYS[2], string.format('%.0f', fence))
  return fence
end
local function hold_all(agreed, label)
  redis.call('SET', KEYS[1], token .. ' ' .. agreed .. ' ' .. label, 'PX', ARGV[2])
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
-- Asked twice: the same answer.
local function hold_still()
  if ARGV[7] ~= '' then
    agreed = ARGV[7]
    if last_fence() < tonumber(agreed) then redis.call('SET', KEYS[2], agreed) end
  end
  local fence = tonumber(agreed) or last_fence()
  -- Somebody has deleted the counter.
  if fence == 0 then fence = next_fence() end
  if parts then
    -- All that he does not keep is free.
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
mark_counter()
return answer
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
  if string.match(redis.call('GET', lock) or '', '^%S+') == token then
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

/// ARGV: token, whether a request of it may still come, how long to refuse it then, the channels'
/// prefix.
pub(super) const LEAVE: &str = r"
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
mark_counter()
return answer
";

-- The preamble of every script: the clock, and the hash of a budget.
--
-- incarnation     the id of this state: the id of the server run, and a random part
-- full_at:<w>     a smooth limit: microseconds at which its bucket is full again
-- quota:<w>       a quota: "bucket:requests bucket:requests ..."
-- taken           tokens that were not given back, for the operator
-- reserved        tokens ever reserved; noted: how many of them the database recorded
-- closed_until, closed_reason, stopped
-- changes         counts the changes of a budget while its state was lost

local key = KEYS[1]

-- numbers are doubles, which are exact below this: until the year 2255
local EXACT = 9007199254740992

local function whole(number)
  assert(number == math.floor(number) and number < EXACT, 'not a whole number')
  return string.format('%.0f', number)
end

local function clock()
  -- only tests pass a clock
  if ARGV[1] ~= '' then
    return tonumber(ARGV[1])
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local now = clock()

-- A restarted server may have loaded an old copy, and a promoted replica may have missed
-- the last writes. Neither has the run id of the server that counted.
local server = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)') or 'unnamed'

local incarnation = redis.call('HGET', key, 'incarnation')
local is_known = incarnation and string.match(incarnation, '^(.*):') == server

local function unknown_reply()
  return {'unknown', now, server, redis.call('HGET', key, 'changes') or '0'}
end

-- No state expires while it counts, or before a closure ends.
local function extend_expiry(milliseconds)
  local closed_until = tonumber(redis.call('HGET', key, 'closed_until') or 0)
  local left = math.max(math.ceil((closed_until - now) / 1000), 0)
  local lifetime = milliseconds + left
  if redis.call('PTTL', key) < lifetime then
    redis.call('PEXPIRE', key, whole(lifetime))
  end
end

-- A process that restores a lost state from the database must read it again.
local function count_change(milliseconds)
  redis.call('HINCRBY', key, 'changes', 1)
  extend_expiry(milliseconds)
end

local function parse(text)
  local counted = {}
  for number, count in string.gmatch(text or '', '(%d+):(%d+)') do
    counted[tonumber(number)] = tonumber(count)
  end
  return counted
end

local function format(counted)
  local parts = {}
  for number, count in pairs(counted) do
    parts[#parts + 1] = whole(number) .. ':' .. whole(count)
  end
  return table.concat(parts, ' ')
end

-- Reserve a token for each request, in order; for a request that would wait longer than it
-- may, return the wait and reserve nothing. These are the decisions of
-- penstock.domain.budget on the same integers; a property test compares both.

local request = cjson.decode(ARGV[2])

if not is_known then
  return unknown_reply()
end

local names = {'stopped', 'closed_until', 'reserved', 'noted', 'taken'}
for _, limit in ipairs(request.limits) do
  names[#names + 1] = limit.field
end
local stored = {}
for position, value in ipairs(redis.call('HMGET', key, unpack(names))) do
  stored[names[position]] = value
end

if stored.stopped then
  return {'stopped', stored.stopped}
end

local used = {}
for _, limit in ipairs(request.limits) do
  if limit.requests then
    used[limit.field] = parse(stored[limit.field])
  else
    local full_at = tonumber(stored[limit.field] or 0)
    -- further ahead than any reservation: the clock was set back
    if full_at > now + request.max_ahead + limit.depth then
      full_at = 0
    end
    used[limit.field] = full_at
  end
end

local function earliest(limit, slot)
  if not limit.requests then
    return used[limit.field] + limit.interval - limit.depth
  end
  local counted = used[limit.field]
  local oldest = math.floor((slot - limit.period) / limit.width)
  local room, numbers = limit.requests, {}
  for number, count in pairs(counted) do
    if number >= oldest then
      room = room - count
      numbers[#numbers + 1] = number
    end
  end
  if room > 0 then
    return slot
  end
  table.sort(numbers)
  for _, number in ipairs(numbers) do
    if room > 0 then
      break
    end
    room = room + counted[number]
    slot = (number + 1) * limit.width + limit.period
  end
  return slot
end

local function count(limit, slot)
  local counted = used[limit.field]
  local oldest = math.floor((now - limit.period) / limit.width)
  for number in pairs(counted) do
    if number < oldest then
      counted[number] = nil
    end
  end
  local number = math.floor(slot / limit.width)
  counted[number] = (counted[number] or 0) + 1
end

local function reserve(slot)
  local is_counted = {}
  for _, limit in ipairs(request.limits) do
    if not limit.requests then
      used[limit.field] = math.max(used[limit.field], slot) + limit.interval
    elseif not is_counted[limit.field] then
      is_counted[limit.field] = true
      count(limit, slot)
    end
  end
end

local results, granted = {}, 0
for position, max_wait in ipairs(request.max_waits) do
  local slot = math.max(now, tonumber(stored.closed_until or 0))
  for _, limit in ipairs(request.limits) do
    slot = math.max(slot, earliest(limit, slot))
  end
  assert(slot < EXACT, 'the slot lies too far ahead')
  if slot - now > max_wait then
    results[position] = {0, slot}
  else
    granted = granted + 1
    reserve(slot)
    local result = {1, slot}
    for _, limit in ipairs(request.limits) do
      if not limit.requests then
        result[#result + 1] = used[limit.field]
      end
    end
    results[position] = result
  end
end

local reserved = tonumber(stored.reserved or 0) + granted
-- below zero: the database has no record of this incarnation
local unnoted = stored.noted and reserved - tonumber(stored.noted) or -1

if granted > 0 then
  local taken = tonumber(stored.taken or 0) + granted
  local fields = {'reserved', whole(reserved), 'taken', whole(taken)}
  for _, limit in ipairs(request.limits) do
    fields[#fields + 1] = limit.field
    local use = used[limit.field]
    fields[#fields + 1] = limit.requests and format(use) or whole(use)
  end
  redis.call('HSET', key, unpack(fields))
  extend_expiry(request.lifetime)
end

return {'reserved', now, incarnation, unnoted, results}

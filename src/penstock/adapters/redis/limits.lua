-- Take up to `most` requests off the allowance of a client, or return how long to wait.
-- The same decision as penstock.domain.client_rate, for several requests at once, in
-- microseconds of the server's clock: a key holds the time at which the allowance is full.

local interval, window, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]

local full_at = tonumber(redis.call('GET', KEYS[1]) or 0)
-- further ahead than any reservation: the clock was set back
if full_at > now + window + interval then
  full_at = now + window
end
local start = math.max(full_at, now)
local room = math.max(0, math.floor((window - (start - now)) / interval + 0.000001))
local granted = math.min(most, room)

if granted > 0 then
  start = start + granted * interval
  redis.call('SET', KEYS[1], string.format('%.3f', start),
    'PX', math.ceil((start - now) / 1000) + 1)
end

-- until there is room for one
local wait = math.max(0, start + interval - window - now)
return {granted, room - granted, math.ceil(wait)}

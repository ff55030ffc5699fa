-- Store how many tokens of this incarnation the database has recorded.

local made, reserved = ARGV[2], tonumber(ARGV[3])

if not is_known or incarnation ~= made then
  return 0
end

local noted = tonumber(redis.call('HGET', key, 'noted') or 0)
redis.call('HSET', key, 'noted', whole(math.max(noted, reserved)))
return 1

-- Read the current fields of a budget.

if not is_known then
  return unknown_reply()
end

return {'known', now, incarnation, redis.call('HMGET', key, unpack(ARGV, 2))}

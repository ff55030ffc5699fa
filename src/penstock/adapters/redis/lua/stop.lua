-- Close a budget until it is opened.

local reason, lifetime = ARGV[2], tonumber(ARGV[3])

if not is_known then
  return count_change(lifetime)
end

redis.call('HSET', key, 'stopped', reason)
extend_expiry(lifetime)

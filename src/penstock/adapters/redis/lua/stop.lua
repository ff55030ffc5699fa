-- Close a budget until it is opened.

local reason, lifetime = ARGV[2], tonumber(ARGV[3])

if not is_known then
  return changed(lifetime)
end

redis.call('HSET', key, 'stopped', reason)
keep(lifetime)

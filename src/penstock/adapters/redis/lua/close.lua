-- Close a budget for a while; a longer closure is not shortened.

local wait, reason, lifetime = tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])

if not is_known then
  return count_change(lifetime)
end

local closed_until = tonumber(redis.call('HGET', key, 'closed_until') or 0)
if closed_until < now + wait then
  redis.call('HSET', key, 'closed_until', whole(now + wait), 'closed_reason', reason)
end
extend_expiry(lifetime)

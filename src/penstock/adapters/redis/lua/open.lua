-- Open a closed or stopped budget.

local lifetime = tonumber(ARGV[2])

if not is_known then
  return count_change(lifetime)
end

redis.call('HDEL', key, 'stopped', 'closed_until', 'closed_reason')

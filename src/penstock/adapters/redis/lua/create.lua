-- Create the state of a budget, unless another process was faster, or the budget was
-- changed since the database was read: then it has to be read again.

local initial = cjson.decode(ARGV[2])

local changes = redis.call('HGET', key, 'changes') or '0'
local is_late = now - initial.read_at > initial.max_delay
if is_known or is_late or server ~= initial.server or changes ~= initial.changes then
  return 0
end

redis.call('DEL', key)
redis.call('HSET', key, 'incarnation', server .. ':' .. initial.random)
for field, text in pairs(initial.fields) do
  redis.call('HSET', key, field, text)
end
if initial.closed_for > 0 then
  redis.call('HSET', key, 'closed_until', whole(now + initial.closed_for))
end
extend_expiry(initial.lifetime)
return 1

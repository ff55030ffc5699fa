-- Create the state of a budget, unless another process was faster, or the budget was
-- changed since the database was read: then it has to be read again.

local begun = cjson.decode(ARGV[2])

local changes = redis.call('HGET', key, 'changes') or '0'
local is_late = now - begun.asked_at > begun.latest
if is_known or is_late or server ~= begun.server or changes ~= begun.changes then
  return 0
end

redis.call('DEL', key)
redis.call('HSET', key, 'incarnation', server .. ':' .. begun.random)
for field, text in pairs(begun.fields) do
  redis.call('HSET', key, field, text)
end
if begun.closed_for > 0 then
  redis.call('HSET', key, 'closed_until', whole(now + begun.closed_for))
end
keep(begun.lifetime)
return 1

-- Return an unused token, unless later tokens were reserved after it.

local grant = cjson.decode(ARGV[2])

-- reservations of a lost state are no longer counted
if not is_known or incarnation ~= grant.incarnation then
  return 0
end

local is_settled = {}
for _, limit in ipairs(grant.limits) do
  local field = limit.field
  local stored = redis.call('HGET', key, field)
  if not is_settled[field] and stored then
    is_settled[field] = true
    if limit.requests then
      local counted = parse(stored)
      local number = math.floor(grant.slot / limit.width)
      if (counted[number] or 0) > 0 then
        counted[number] = counted[number] - 1
        redis.call('HSET', key, field, format(counted))
      end
    elseif tonumber(stored) == grant.full_at[field] then
      redis.call('HSET', key, field, whole(tonumber(stored) - limit.interval))
    end
  end
end
redis.call('HINCRBY', key, 'taken', -1)
return 1

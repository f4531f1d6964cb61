-- Writes the identity of the store into one of its parts, unless that has the identity of another store.
-- KEYS: 1 the marker    ARGV: 1 identity, 2 identities that never became complete
local is = redis.call('TYPE', KEYS[1]).ok
if is ~= 'none' and is ~= 'string' then
    return {'type', KEYS[1]}
end
local found = redis.call('GET', KEYS[1])
if found and found ~= ARGV[1] and not string.find(ARGV[2] .. ' ', ' ' .. found .. ' ', 1, true) then
    return {'lost', found}
end
redis.call('SET', KEYS[1], ARGV[1])
return {'done'}

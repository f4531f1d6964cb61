-- Replaces a setting if it has the expected value, or reads all of them.
-- KEYS: 1 settings, 2 proof, 3 the store's identity
-- ARGV: 1 as for get, 2 the identity that this node knows ('' for none, only to read), then nothing more to read; 3 name, 4 '1' with a value,
--       5 the expected value, 6 '1' with a value, 7 the new value
local is = redis.call('TYPE', KEYS[1]).ok
if is ~= 'none' and is ~= 'hash' then
    return {'type', KEYS[1]}
end
if (ARGV[2] ~= '' or #ARGV > 2) and redis.call('GET', KEYS[3]) ~= ARGV[2] then return {'lost', redis.call('GET', KEYS[3])} end
if ARGV[1] == '1' then
    redis.call('SET', KEYS[2], '1')
elseif ARGV[1] == '0' and ARGV[6] == '1' then
    redis.call('SETRANGE', KEYS[2], 0, '')
elseif ARGV[1] == '0' then
    redis.call('DEL', KEYS[2])
end
if #ARGV == 2 then
    return {'found', redis.call('HGETALL', KEYS[1])}
end
local found = redis.call('HGET', KEYS[1], ARGV[3])
local is_met
if ARGV[4] == '1' then
    is_met = found == ARGV[5]
else
    is_met = not found
end
if not is_met then
    return {'refused', found}
end
if ARGV[6] == '1' then
    redis.call('HSET', KEYS[1], ARGV[3], ARGV[7])
else
    redis.call('HDEL', KEYS[1], ARGV[3])
end
return {'done'}

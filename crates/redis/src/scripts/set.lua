-- Replaces a setting if it has the expected value, or reads all of them.
-- KEYS: 1 settings, 2 proof    ARGV: 1 as for get, then nothing more to read; 2 name, 3 '1' with a value, 4 the expected value,
--       5 '1' with a value, 6 the new value
local is = redis.call('TYPE', KEYS[1]).ok
if is ~= 'none' and is ~= 'hash' then
    return {'type', KEYS[1]}
end
if ARGV[1] == '1' then
    redis.call('SET', KEYS[2], '1')
elseif ARGV[1] == '0' and ARGV[5] == '1' then
    redis.call('SETRANGE', KEYS[2], 0, '')
elseif ARGV[1] == '0' then
    redis.call('DEL', KEYS[2])
end
if #ARGV == 1 then
    return {'found', redis.call('HGETALL', KEYS[1])}
end
local found = redis.call('HGET', KEYS[1], ARGV[2])
local is_met
if ARGV[3] == '1' then
    is_met = found == ARGV[4]
else
    is_met = not found
end
if not is_met then
    return {'refused', found}
end
if ARGV[5] == '1' then
    redis.call('HSET', KEYS[1], ARGV[2], ARGV[6])
else
    redis.call('HDEL', KEYS[1], ARGV[2])
end
return {'done'}

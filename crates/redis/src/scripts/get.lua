-- The value, from a server that takes writes. A script copies its data several times, so a long value would block the server.
-- Of a long value only the first bytes are returned, which identify the value when it is read separately.
-- KEYS: 1 record, 2 proof, 3 the store's identity
-- ARGV: 1 '1' to be confirmed, '0' to be proven, '' for any server, 2 longest value to read here,
--       3 the identity that this node knows ('' for none)
local GUARD = 57
local is = redis.call('TYPE', KEYS[1]).ok
if is ~= 'none' and is ~= 'string' then
    return {'type', KEYS[1]}
end
-- That nothing is found is true only where nothing was lost.
if is == 'none' and ARGV[3] ~= '' and redis.call('GET', KEYS[3]) ~= ARGV[3] then
    return {'lost', redis.call('GET', KEYS[3])}
end
if ARGV[1] == '1' then
    redis.call('SET', KEYS[2], '1')
elseif ARGV[1] == '0' then
    redis.call('DEL', KEYS[2])
end
local time = redis.call('TIME')
if is == 'none' then
    return {'found', time[1], time[2], false}
end
local value = redis.call('GETRANGE', KEYS[1], 0, ARGV[2])
if #value > tonumber(ARGV[2]) then
    return {'large', time[1], time[2], string.sub(value, 1, GUARD)}
end
return {'found', time[1], time[2], value}

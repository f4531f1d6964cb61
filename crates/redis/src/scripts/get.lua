-- What is there, from a server that takes writes.
-- KEYS: 1 record, 2 proof    ARGV: 1 '1' to be confirmed, '0' to be proven, '' where any server will do
local is = redis.call('TYPE', KEYS[1]).ok
if is ~= 'none' and is ~= 'string' then
    return {'type', KEYS[1]}
end
if ARGV[1] == '1' then
    redis.call('SET', KEYS[2], '1')
elseif ARGV[1] == '0' then
    redis.call('DEL', KEYS[2])
end
local time = redis.call('TIME')
return {'found', time[1], time[2], redis.call('GET', KEYS[1])}

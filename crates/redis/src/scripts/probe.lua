-- Which commands of the other scripts the store's user may not run, so that a missing right is found here and not in the middle of
-- a write. Nothing is left behind.
-- KEYS: 1 string, 2 zset, 3 hash
local lacks, failure = {'lacks'}, nil
local function try(command, ...)
    local answer = redis.pcall(command, ...)
    local err = type(answer) == 'table' and answer.err
    if not err then return true end
    if string.find(err, 'NOPERM', 1, true) or string.find(err, "can't run this command", 1, true) then
        lacks[#lacks + 1] = command
    else
        failure = failure or err
    end
    return false
end

-- A key that could not be removed is not created.
if not try('DEL', KEYS[1], KEYS[2], KEYS[3]) then
    if failure then return redis.error_reply(failure) end
    return lacks
end
try('TIME')
try('TYPE', KEYS[1])
try('EXISTS', KEYS[1])
try('SET', KEYS[1], 'probe')
try('GET', KEYS[1])
try('GETRANGE', KEYS[1], 0, 1)
try('STRLEN', KEYS[1])
try('SETRANGE', KEYS[1], 0, '')
try('PERSIST', KEYS[1])
try('ZADD', KEYS[2], 0, 'probe')
try('ZCARD', KEYS[2])
try('ZRANGEBYLEX', KEYS[2], '-', '+', 'LIMIT', 0, 1)
try('ZREVRANGEBYLEX', KEYS[2], '+', '-', 'LIMIT', 0, 1)
try('ZREM', KEYS[2], 'probe')
try('HSET', KEYS[3], 'probe', 1)
try('HINCRBY', KEYS[3], 'probe', 1)
try('HGET', KEYS[3], 'probe')
try('HGETALL', KEYS[3])
try('HDEL', KEYS[3], 'probe')
try('DEL', KEYS[1], KEYS[2], KEYS[3])
if failure then return redis.error_reply(failure) end
if #lacks > 1 then return lacks end
return {'may'}

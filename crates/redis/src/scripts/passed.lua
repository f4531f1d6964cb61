-- Notes that a pass over all records found none with an expiry, or returns the last note.
-- KEYS: 1 meta    ARGV: 1 how many keys of the server had an expiry ('' to return the last note)
local time = redis.call('TIME')
local millis = string.format('%.0f', tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000))
if ARGV[1] ~= '' and redis.call('HGET', KEYS[1], 'format') then
    redis.call('HSET', KEYS[1], 'without_expiry', millis .. ' ' .. ARGV[1])
end
return {'found', millis, redis.call('HGET', KEYS[1], 'without_expiry') or ''}

-- Removes a position from a list if its record no longer exists: the server removed it long after its end.
-- KEYS: 1 record, 2 list    ARGV: 1 position
if redis.call('TYPE', KEYS[1]).ok == 'none' and redis.call('TYPE', KEYS[2]).ok == 'zset' then
    return redis.call('ZREM', KEYS[2], ARGV[1])
end
return 0

-- Removes a position from a list if its record no longer exists: a script was interrupted, or the server expired the record.
-- KEYS: 1 record, 2 list, 3 the store's identity    ARGV: 1 position, 2 the identity that this node knows
if redis.call('GET', KEYS[3]) ~= ARGV[2] then return 0 end
if redis.call('TYPE', KEYS[1]).ok == 'none' and redis.call('TYPE', KEYS[2]).ok == 'zset' then
    return redis.call('ZREM', KEYS[2], ARGV[1])
end
return 0

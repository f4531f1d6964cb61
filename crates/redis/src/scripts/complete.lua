-- Every part of the store has its identity: from now on, one without it has lost its data.
-- KEYS: 1 meta    ARGV: 1 identity
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' or redis.call('HGET', KEYS[1], 'identity') ~= ARGV[1] then
    return {'other'}
end
redis.call('HSET', KEYS[1], 'stage', 'complete')
redis.call('HDEL', KEYS[1], 'unfinished')
return {'done'}

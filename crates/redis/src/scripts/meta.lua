-- The layout of the store: an existing one is kept.
-- KEYS: 1 meta    ARGV: 1 format, 2 buckets of a new store
local is = redis.call('TYPE', KEYS[1]).ok
if is ~= 'none' and is ~= 'hash' then
    return {'type', KEYS[1]}
end
if redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('HSET', KEYS[1], 'format', ARGV[1], 'buckets', ARGV[2])
end
-- It is incremented when nodes change to another server: a server with a lower one has lost writes.
if not redis.call('HGET', KEYS[1], 'epoch') then
    redis.call('HSET', KEYS[1], 'epoch', '1')
end
return {'found', redis.call('HGET', KEYS[1], 'format'), redis.call('HGET', KEYS[1], 'buckets'), redis.call('HGET', KEYS[1], 'epoch')}

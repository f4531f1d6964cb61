-- The layout of the store, and its identity: existing ones are kept.
-- Only the node that drew an identity writes its markers, and all of them before the store is complete. Otherwise one could be
-- written after that, and hide a loss.
-- KEYS: 1 meta    ARGV: 1 format, 2 buckets of a new store, 3 random digits, 4 the unfinished identity to replace ('' for none)
local is = redis.call('TYPE', KEYS[1]).ok
if is ~= 'none' and is ~= 'hash' then
    return {'type', KEYS[1]}
end
if not redis.call('HGET', KEYS[1], 'format') then
    redis.call('HSET', KEYS[1], 'format', ARGV[1], 'buckets', ARGV[2])
end
-- It is incremented when nodes change to another server: a server with a lower one has lost writes.
if not redis.call('HGET', KEYS[1], 'epoch') then
    redis.call('HSET', KEYS[1], 'epoch', '1')
end
local identity, stage = redis.call('HGET', KEYS[1], 'identity'), redis.call('HGET', KEYS[1], 'stage')
local buckets, unfinished = redis.call('HGET', KEYS[1], 'buckets'), redis.call('HGET', KEYS[1], 'unfinished') or ''
if redis.call('HGET', KEYS[1], 'format') == ARGV[1] and (not identity or stage ~= 'complete' and identity == ARGV[4]) then
    if identity then unfinished = unfinished .. ' ' .. identity end
    identity, stage = buckets .. '-' .. ARGV[3], 'creating'
    redis.call('HSET', KEYS[1], 'identity', identity, 'stage', stage, 'unfinished', unfinished)
end
return {'found', redis.call('HGET', KEYS[1], 'format'), buckets, redis.call('HGET', KEYS[1], 'epoch'), identity or '', stage or '', unfinished}

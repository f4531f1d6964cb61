-- Increments the store's epoch for a node that has changed to this server, unless another node has done so.
-- KEYS: 1 meta    ARGV: 1 the epoch that the node knows
local is = redis.call('TYPE', KEYS[1]).ok
if is ~= 'none' and is ~= 'hash' then
    return {'type', KEYS[1]}
end
-- Only the creation of a store writes its key: without one, the server lacks everything that the node has seen.
if not redis.call('HGET', KEYS[1], 'format') then
    return {'found', '0'}
end
local epoch = redis.call('HGET', KEYS[1], 'epoch') or '0'
if epoch == ARGV[1] then
    epoch = tostring(redis.call('HINCRBY', KEYS[1], 'epoch', 1))
end
return {'found', epoch}

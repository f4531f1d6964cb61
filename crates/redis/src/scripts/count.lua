-- The sizes of the lists of a bucket, and the number of a caller's records.
-- KEYS: 1 proof, 2 callers, 3 the store's identity, then the lists
-- ARGV: 1 as for get, 2 a caller, 3 the identity that this node knows ('' for none)
if ARGV[3] ~= '' and redis.call('GET', KEYS[3]) ~= ARGV[3] then return {'lost', redis.call('GET', KEYS[3])} end
if ARGV[1] ~= '' then redis.call('DEL', KEYS[1]) end
local time = redis.call('TIME')
-- An inspection skips foreign keys and shows the rest.
local only_looks = ARGV[1] == ''
local is = redis.call('TYPE', KEYS[2]).ok
if is ~= 'none' and is ~= 'hash' and not only_looks then
    return {'type', KEYS[2]}
end
local counts = {is == 'hash' and redis.call('HGET', KEYS[2], ARGV[2]) or '0'}
for at = 4, #KEYS do
    is = redis.call('TYPE', KEYS[at]).ok
    if is ~= 'none' and is ~= 'zset' and not only_looks then
        return {'type', KEYS[at]}
    end
    counts[#counts + 1] = is == 'zset' and redis.call('ZCARD', KEYS[at]) or 0
end
return {'found', time[1], time[2], counts}

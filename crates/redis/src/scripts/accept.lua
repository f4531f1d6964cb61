-- Notes that an operator accepted a loss, and completes the store under an identity: in one step, because all of these keys are in one
-- slot.
-- KEYS: 1 meta, 2 the marker of the settings, 3 settings
-- ARGV: 1 the identity in meta ('' for none), 2 the identity from now on, 3 format, 4 buckets, 5 the note, 6 how many notes to keep,
--       7 the setting which says that the secret is lost ('' if it is not)
for at, wanted in ipairs({'hash', 'string', 'hash'}) do
    local is = redis.call('TYPE', KEYS[at]).ok
    if is ~= 'none' and is ~= wanted then
        return {'type', KEYS[at]}
    end
end
if (redis.call('HGET', KEYS[1], 'identity') or '') ~= ARGV[1] then
    return {'other'}
end
local seconds = redis.call('TIME')[1]
if redis.call('HGET', KEYS[1], 'stage') ~= 'complete' then
    -- The epoch is lost too: this one is higher than any that a node has seen.
    redis.call('HSET', KEYS[1], 'format', ARGV[3], 'buckets', ARGV[4], 'epoch', seconds)
    redis.call('HDEL', KEYS[1], 'unfinished')
end
local notes, count = ARGV[5], 1
for note in string.gmatch(redis.call('HGET', KEYS[1], 'accepted') or '', '[^\n]+') do
    if count < tonumber(ARGV[6]) then notes, count = notes .. '\n' .. note, count + 1 end
end
redis.call('HSET', KEYS[1], 'identity', ARGV[2], 'stage', 'complete', 'accepted', notes)
redis.call('SET', KEYS[2], ARGV[2])
if ARGV[7] ~= '' then redis.call('HSET', KEYS[3], ARGV[7], seconds) end
return {'done'}

-- One conditional write: the record and its index entries. Everything is checked before the first change; Redis undoes nothing.
-- KEYS: 1 record, 2 due, 3 the list that it leaves, 4 the list that it joins, 5 callers, 6 proof, 7 the store's identity
-- ARGV: 1 the first bytes that are expected ('' for none), 2 operation id, 3 the new value ('' to remove),
--       4 digest and length of a longer value that was intact ('' for none), 5 longest value to read here, 6 '1' to be confirmed,
--       7 the identity that this node knows
local HEAD, GUARD = 126, 57
local types, exists = {'string', 'zset', 'zset', 'zset', 'hash'}, false
for at, wanted in ipairs(types) do
    local is = redis.call('TYPE', KEYS[at]).ok
    if is ~= 'none' and is ~= wanted then
        return {'type', KEYS[at]}
    end
    exists = exists or at == 1 and is ~= 'none'
end
-- Refused by a replica, and by a server that has lost its replicas: their data proves nothing. A server without memory refuses only
-- the first command of a script, so that must be one that needs memory, except for removals.
if ARGV[6] == '1' then
    redis.call('SET', KEYS[6], '1')
elseif ARGV[3] == '' then
    redis.call('DEL', KEYS[6])
else
    redis.call('SETRANGE', KEYS[6], 0, '')
end
local time = redis.call('TIME')
-- A script copies its data several times, so a long value would block the server. Only its first bytes are read.
local found = exists and redis.call('GETRANGE', KEYS[1], 0, ARGV[5])
local is_large = exists and #found > tonumber(ARGV[5])

local function is_whole(value)
    if #value < HEAD then return false end
    local a, b, c, d = string.byte(value, 123, 126)
    local entry = string.sub(value, HEAD + 1 + ((a * 256 + b) * 256 + c) * 256 + d)
    return string.sub(redis.sha1hex(entry), 1, 16) == string.sub(value, 58, 73)
end

local is_met
if ARGV[1] == '' then
    is_met = not found
else
    is_met = found and string.sub(found, 1, GUARD) == ARGV[1]
    if is_met and is_large then
        local whole = string.sub(found, 58, 73) .. redis.call('STRLEN', KEYS[1])
        if ARGV[4] ~= whole then
            return {'unproven', time[1], time[2], string.sub(found, 1, GUARD)}
        end
    elseif is_met then
        is_met = is_whole(found)
    end
end
-- What is found is true even after a loss; that nothing is found is not.
if (is_met or not found) and redis.call('GET', KEYS[7]) ~= ARGV[7] then
    return {'lost', redis.call('GET', KEYS[7])}
end
if not is_met then
    if is_large then
        return {'large', time[1], time[2], string.sub(found, 1, GUARD)}
    end
    return {'refused', time[1], time[2], found}
end

local id, next = ARGV[2], ARGV[3]
local of_caller = next ~= '' and next or found
local caller = string.sub(of_caller, 91, 98)
local is_marker = string.sub(of_caller, 1, 1) == '7'
local counted = redis.call('HGET', KEYS[5], caller)
if counted and not string.match(counted, '^%d+$') then
    return {'type', KEYS[5]}
end

local function due(value)
    return string.sub(value, 82, 82) == '1' and string.sub(value, 83, 90) .. id or nil
end
local function place(value)
    return string.sub(value, 74, 81) .. id
end

-- From here on everything succeeds. Index entries are added before the record, and removed after it.
if next == '' then
    redis.call('DEL', KEYS[1])
else
    if due(next) then redis.call('ZADD', KEYS[2], 0, due(next)) end
    redis.call('ZADD', KEYS[4], 0, place(next))
    -- Without an expiry: SET drops one that an older version set. The server's clock may be wrong.
    redis.call('SET', KEYS[1], next)
end
if found then
    if due(found) and (next == '' or due(next) ~= due(found)) then redis.call('ZREM', KEYS[2], due(found)) end
    if next == '' or KEYS[3] ~= KEYS[4] or place(next) ~= place(found) then
        redis.call('ZREM', KEYS[3], place(found))
    end
end
if not is_marker and not found then
    redis.call('HINCRBY', KEYS[5], caller, 1)
elseif not is_marker and next == '' then
    if tonumber(counted or '0') <= 1 then
        redis.call('HDEL', KEYS[5], caller)
    else
        redis.call('HINCRBY', KEYS[5], caller, -1)
    end
end
return {'done', time[1], time[2]}

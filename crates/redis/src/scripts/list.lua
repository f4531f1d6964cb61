-- The next positions of some lists, in order.
-- KEYS: 1 proof, 2 the store's identity, then the lists
-- ARGV: 1 as for get, 2 'up' or 'down', 3 the position to continue after ('' for the end),
--       4 not beyond these bytes ('' for all, 'now' for the server's time), 5 how many of each, 6 the identity that this node knows ('' for none)
if ARGV[6] ~= '' and redis.call('GET', KEYS[2]) ~= ARGV[6] then return {'lost', redis.call('GET', KEYS[2])} end
local is_list = {}
for at = 3, #KEYS do
    local is = redis.call('TYPE', KEYS[at]).ok
    is_list[at] = is == 'zset'
    -- An inspection skips foreign keys and shows the rest.
    if is ~= 'none' and is ~= 'zset' and ARGV[1] ~= '' then
        return {'type', KEYS[at]}
    end
end
if ARGV[1] ~= '' then redis.call('DEL', KEYS[1]) end
local time = redis.call('TIME')
local upper = ARGV[4]
if upper == 'now' then
    local left = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
    upper = ''
    for _ = 1, 8 do
        upper = string.char(left % 256) .. upper
        left = math.floor(left / 256)
    end
end
upper = upper == '' and '+' or '[' .. upper .. string.rep('\255', 17)
local found = {}
for at = 3, #KEYS do
    local part = {}
    if not is_list[at] then
        -- Nothing to list.
    elseif ARGV[2] == 'up' then
        local from = ARGV[3] == '' and '-' or '(' .. ARGV[3]
        part = redis.call('ZRANGEBYLEX', KEYS[at], from, upper, 'LIMIT', 0, ARGV[5])
    else
        local from = ARGV[3] == '' and '+' or '(' .. ARGV[3]
        part = redis.call('ZREVRANGEBYLEX', KEYS[at], from, '-', 'LIMIT', 0, ARGV[5])
    end
    found[#found + 1] = part
end
return {'found', time[1], time[2], found}

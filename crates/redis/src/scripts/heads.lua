-- The first bytes and the length of each record, up to the name of its operation.
-- KEYS: 1 proof, 2 the store's identity, then the records    ARGV: 1 as for get, 2 the identity that this node knows ('' for none)
local HEAD = 126
if ARGV[2] ~= '' and redis.call('GET', KEYS[2]) ~= ARGV[2] then return {'lost', redis.call('GET', KEYS[2])} end
if ARGV[1] ~= '' then redis.call('DEL', KEYS[1]) end
local time = redis.call('TIME')
local heads = {}
for at = 3, #KEYS do
    if redis.call('TYPE', KEYS[at]).ok == 'string' then
        local head = redis.call('GETRANGE', KEYS[at], 0, HEAD - 1)
        if #head == HEAD then
            local a, b, c, d = string.byte(head, 123, 126)
            head = redis.call('GETRANGE', KEYS[at], 0, HEAD - 1 + ((a * 256 + b) * 256 + c) * 256 + d)
        end
        heads[#heads + 1] = {head, redis.call('STRLEN', KEYS[at])}
    else
        heads[#heads + 1] = false
    end
end
return {'found', time[1], time[2], heads}

-- Removes the expiry of records, and returns how many had one.
-- KEYS: the records
local had = 0
for at = 1, #KEYS do
    had = had + redis.call('PERSIST', KEYS[at])
end
return {'found', had}

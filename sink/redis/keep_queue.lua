-- KEYS[1] the counter of the relay's jobs; ARGV[1] what it must be. Sets it to what it is.
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return 1

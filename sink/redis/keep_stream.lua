-- KEYS[1] the stream; ARGV[1] the entry that must be its last one, or be there. Sets the last id to what it is.
if redis.call('TYPE', KEYS[1])['ok'] ~= 'stream' then return 0 end
local last = ''
local info = redis.call('XINFO', 'STREAM', KEYS[1])
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then last = info[i + 1] end
end
if last ~= ARGV[1] and #redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[1]) == 0 then return 0 end
redis.call('XSETID', KEYS[1], last)
return 1

-- KEYS[1] the stream; ARGV: expected last id, length to trim to (0 = none), then per entry the number of its strings and these.
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(seq)
end
local last = '0-0'
local kind = redis.call('TYPE', KEYS[1])['ok']
if kind ~= 'none' then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for i = 1, #info, 2 do
    if info[i] == 'last-generated-id' then last = info[i + 1] end
  end
end
if last ~= ARGV[1] then return {0, last} end
local time = redis.call('TIME')
local ms, seq = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000), 0
local lastms, lastseq = parts(last)
if lastms >= ms then ms, seq = lastms, lastseq + 1 end
local entries, at = 0, 3
while at <= #ARGV do
  entries, at = entries + 1, at + 1 + tonumber(ARGV[at])
end
if seq + entries > 4194304 then ms, seq = ms + 1, 0 end
local first = string.format('%.0f-%.0f', ms, seq)
at = 3
while at <= #ARGV do
  local n = tonumber(ARGV[at])
  redis.call('XADD', KEYS[1], string.format('%.0f-%.0f', ms, seq), unpack(ARGV, at + 1, at + n))
  seq, at = seq + 1, at + 1 + n
end
if ARGV[2] ~= '0' then redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[2]) end
return {1, first}

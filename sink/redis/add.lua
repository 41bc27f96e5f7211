-- Adds jobs to a queue, if the queue's end is where the caller believes; else nothing. Answers {1, end before}, or
-- {0, end}, or {2, what opened the queue}. What is found wrong is found before the first write.
-- KEYS: end, notes, id, wait, paused, meta, active, events, marker (of Bull: meta-paused instead of active; no events, no marker)
-- ARGV: expected end, notes to keep, what begins a job's key, 'bull' or 'bullmq',
--       then of each job: id, name, timestamp, data, options, note
local kinds = {'string', 'list', 'string', 'list', 'list', 'hash', 'list', 'stream', 'zset'}
local bull = ARGV[4] == 'bull'
if bull then kinds[7] = 'string' end
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  -- The value of Bull's meta-paused is of no interest, only that it is there.
  if kind ~= 'none' and kind ~= kinds[i] and not (bull and i == 7) then
    return redis.error_reply('WRONGTYPE ' .. key .. ' is a ' .. kind)
  end
end

local last = redis.call('GET', KEYS[1]) or '0'
if last ~= ARGV[1] then return {0, last} end

local target, held, most = KEYS[4], false, nil
if bull then
  local version = redis.call('HGET', KEYS[6], 'version')
  if version then return {2, version} end
  if redis.call('EXISTS', KEYS[7]) == 1 then target = KEYS[5] end
else
  local meta = redis.call('HMGET', KEYS[6], 'version', 'paused', 'concurrency', 'opts.maxLenEvents')
  local version = meta[1] or ''
  local major = tonumber(string.match(version, '^bullmq:(%d+)'))
  if major and (major < 5 or major > 6) then return {2, version} end
  if meta[2] then
    if major == 5 then target = KEYS[5] elseif major ~= 6 then return {2, version} end
    held = true
  elseif meta[3] then
    held = redis.call('LLEN', KEYS[7]) >= tonumber(meta[3])
  end
  most = meta[4]
end

-- An error from here on, such as a command that the user may not run, leaves the end as it is: then the batch comes
-- again. What the end says is tried first, and what cannot be done twice comes last.
local n = (#ARGV - 4) / 6
redis.call('SET', KEYS[1], last)
redis.call('INCRBY', KEYS[3], n)
if not bull and not most then
  most = 10000
  redis.call('HSET', KEYS[6], 'opts.maxLenEvents', most)
end
local added, notes, seen = {}, {}, {}
for i = 1, n do
  local at = 6 * i - 1
  local id, name, position = ARGV[at], ARGV[at + 1], string.format('%.0f', last + i)
  local job = redis.call('HMGET', ARGV[3] .. id, 'name', 'cdc-relay')
  -- A job of that id is the same event, added by whomever: both libraries ignore it then. One behind the end was left by
  -- a script that failed.
  if not seen[id] and (not job[1] or job[2] and tonumber(job[2]) > tonumber(last)) then
    seen[id] = true
    redis.call('HSET', ARGV[3] .. id, 'name', name, 'data', ARGV[at + 3], 'opts', ARGV[at + 4],
      'timestamp', ARGV[at + 2], 'delay', 0, 'priority', 0, 'cdc-relay', position)
    added[#added + 1] = id
    if not bull then redis.call('XADD', KEYS[8], '*', 'event', 'added', 'jobId', id, 'name', name) end
  end
  notes[i] = position .. ' ' .. ARGV[at + 5]
end
for i, id in ipairs(added) do
  if bull then
    redis.call('PUBLISH', KEYS[4] .. 'ing@cdc-relay', id)
  elseif i < #added then
    redis.call('XADD', KEYS[8], '*', 'event', 'waiting', 'jobId', id)
  else
    redis.call('XADD', KEYS[8], 'MAXLEN', '~', most, '*', 'event', 'waiting', 'jobId', id)
  end
end
redis.call('LPUSH', KEYS[2], unpack(notes))
redis.call('LTRIM', KEYS[2], 0, ARGV[2] - 1)
if #added > 0 then
  if not bull and not held then redis.call('ZADD', KEYS[9], 0, '0') end
  redis.call('LPUSH', target, unpack(added))
end
redis.call('SET', KEYS[1], string.format('%.0f', last + n))
return {1, last}

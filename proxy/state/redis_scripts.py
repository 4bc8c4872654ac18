"""What runs inside Redis, in Lua: each script is one atomic step. Used by all `redis_` modules.

The rules of meters are those of `memory_meters`; tests compare them. Numbers are whole and below
2^53.
"""

from __future__ import annotations

# KEYS: the tenant's leases, then one key for each meter; all have the same hash tag.
# ARGV: operation, time (0: the server's), instance, lease in us, then seven fields for each meter:
# kind, limit, span, opening, mark, reserved, amount.
#
# `reserve` returns the longest wait, the index of its meter, and mark, left and reset of each.
# `settle`, `amend`, `add` (an amount that was counted while this state could not be reached, or was
# lost) and `hold` (what this instance holds, whatever was counted) return the indexes of the meters
# whose keys are broken: they did not change, and the others did.
METERS = """
local NEVER, GAUGE_WAIT, PARTS = 4503599627370496, 1000000, 128
local RATE, WINDOW, GAUGE, PERIOD = 0, 1, 2, 3
local IDLE_MS, LONGEST_RUN = 60000, 86400000000
local op, now, instance, lease = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
if now == 0 then
  local t = redis.call('TIME')
  now = tonumber(t[1]) * 1000000 + tonumber(t[2])
end
local function text(n) return string.format('%.0f', n) end
local function keep(key, us)
  redis.call('PEXPIRE', key, text(math.max(math.ceil(us / 1000), 0) + IDLE_MS))
end

local function forget(m)
  local found = redis.call('HMGET', m.key, 's', 'o')
  local first = m.part - PARTS
  m.total, m.oldest = tonumber(found[1] or 0), tonumber(found[2] or m.part)
  if m.oldest < first - PARTS - 1 then
    redis.call('DEL', m.key)
    m.total, m.oldest = 0, m.part
  elseif m.oldest < first then
    for each = m.oldest, first - 1 do
      local taken = redis.call('HGET', m.key, text(each))
      if taken then
        m.total = m.total - tonumber(taken)
        redis.call('HDEL', m.key, text(each))
      end
    end
    m.oldest = first
    redis.call('HSET', m.key, 's', text(m.total), 'o', text(first))
  end
end

local function add_part(m, part, amount)
  redis.call('HINCRBY', m.key, text(part), text(amount))
  redis.call('HINCRBY', m.key, 's', text(amount))
  local oldest = tonumber(redis.call('HGET', m.key, 'o') or part)
  local newest = tonumber(redis.call('HGET', m.key, 'n') or -1)
  redis.call('HSET', m.key, 'o', text(math.min(oldest, part)), 'n', text(math.max(newest, part)))
  keep(m.key, m.span + m.width)
end

local function running(key)
  local sum = 0
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    local name, held = fields[i], tonumber(fields[i + 1])
    local till = name == 'u' or name == instance or redis.call('HGET', KEYS[1], name)
    if till == true or (till and tonumber(till) > now) then
      sum = sum + held
    else
      redis.call('HDEL', key, name)
    end
  end
  return sum
end

local function set_held(key, held)
  if held <= 0 then
    redis.call('HDEL', key, instance)
  else
    redis.call('HSET', key, instance, text(held))
  end
end

local function add_held(key, amount)
  set_held(key, tonumber(redis.call('HGET', key, instance) or 0) + amount)
end

local function open_period(m)
  redis.call('HSETNX', m.key, 'u', m.opening)
  keep(m.key, m.span - now)
end

local function wait_for(m)
  if m.kind == RATE then
    m.most = m.limit * m.span
    local full = tonumber(redis.call('GET', m.key) or 0)
    m.full = math.min(math.max(full, now), now + m.most)
    return math.max(m.full + m.amount * m.span - now - m.most, 0)
  elseif m.kind == WINDOW then
    forget(m)
    local surplus = m.total + m.amount - m.limit
    for each = m.oldest, surplus > 0 and m.part or m.oldest - 1 do
      surplus = surplus - tonumber(redis.call('HGET', m.key, text(each)) or 0)
      if surplus <= 0 then return (each + 1 + PARTS) * m.width - now end
    end
    return 0
  end
  if m.kind == PERIOD then open_period(m) end
  m.total = running(m.key)
  if m.total + m.amount <= m.limit then return 0 end
  return m.kind == GAUGE and GAUGE_WAIT or math.max(m.span - now, 1)
end

local function take(m, amount)
  if m.kind == RATE then
    local full = m.full + amount * m.span
    if amount > 0 then
      redis.call('SET', m.key, text(full), 'PX', text(math.ceil((full - now) / 1000) + IDLE_MS))
    end
    return full, math.floor((m.most - full + now) / m.span), full - now
  elseif m.kind == WINDOW then
    if amount > 0 then add_part(m, m.part, amount) end
    local newest, reset = tonumber(redis.call('HGET', m.key, 'n') or -1), 0
    if newest >= m.part - PARTS then reset = (newest + 1 + PARTS) * m.width - now end
    return m.part, m.limit - m.total - amount, reset
  end
  if amount > 0 then
    add_held(m.key, amount)
    keep(m.key, m.kind == PERIOD and m.span - now or LONGEST_RUN)
  end
  return 0, m.limit - m.total - amount, m.kind == PERIOD and m.span - now or 0
end

local function change(m)
  if op == 'hold' then
    set_held(m.key, m.amount)
    redis.call('PEXPIRE', m.key, text(math.ceil(lease / 1000) + 32 * 86400000))
  elseif m.kind == RATE then
    local full = redis.call('GET', m.key)
    if full and tonumber(full) == m.mark and m.amount ~= m.reserved then
      local new = text(tonumber(full) + (m.amount - m.reserved) * m.span)
      redis.call('SET', m.key, new, 'KEEPTTL')
    end
  elseif m.kind == WINDOW then
    forget(m)
    if op == 'add' then
      if m.mark >= m.part - PARTS and m.mark <= m.part then add_part(m, m.mark, m.amount) end
    elseif redis.call('HEXISTS', m.key, text(m.mark)) == 1 then
      redis.call('HINCRBY', m.key, text(m.mark), text(m.amount - m.reserved))
      redis.call('HINCRBY', m.key, 's', text(m.amount - m.reserved))
    end
  else
    if op == 'amend' then
      add_held(m.key, m.amount - m.reserved)
    elseif op == 'settle' then
      add_held(m.key, -m.reserved)
    end
    if m.kind == PERIOD then
      open_period(m)
      if op ~= 'amend' then redis.call('HINCRBY', m.key, 'u', text(m.amount)) end
    end
  end
end

redis.call('HSET', KEYS[1], instance, text(now + lease))
redis.call('PEXPIRE', KEYS[1], text(math.ceil(lease / 1000) + IDLE_MS))
local meters = {}
for i = 1, #KEYS - 1 do
  local kind, limit, span, opening, mark, reserved, amount = unpack(ARGV, 7 * i - 2, 7 * i + 4)
  local m = {
    key = KEYS[i + 1], kind = tonumber(kind), limit = tonumber(limit), span = tonumber(span),
    opening = opening, mark = tonumber(mark), reserved = tonumber(reserved),
    amount = tonumber(amount)
  }
  if m.kind == WINDOW then
    m.width = m.span / PARTS
    m.part = math.floor(now / m.width)
  end
  meters[i] = m
end
local answer = {}
if op ~= 'reserve' then
  for i, m in ipairs(meters) do
    if not pcall(change, m) then answer[#answer + 1] = i - 1 end
  end
  return answer
end
local longest, at = 0, 0
for i, m in ipairs(meters) do
  local wait = wait_for(m)
  if m.amount == 0 then wait = 0 elseif m.amount > m.limit then wait = NEVER end
  if wait > longest then longest, at = wait, i - 1 end
end
answer = {longest, at}
for _, m in ipairs(meters) do
  local mark, left, reset = take(m, longest > 0 and 0 or m.amount)
  answer[#answer + 1] = mark
  answer[#answer + 1] = math.max(left, 0)
  answer[#answer + 1] = math.max(reset, 0)
end
return answer
"""

# KEYS: the mark of this state, the instances. ARGV: instance, lease in us, a new mark.
# Returns the mark, which changes when the state was lost, and how many instances are alive.
BEAT = """
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000000 + tonumber(t[2])
redis.call('SET', KEYS[1], ARGV[3], 'NX')
redis.call('ZADD', KEYS[2], string.format('%.0f', now + tonumber(ARGV[2])), ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', string.format('%.0f', now))
return {redis.call('GET', KEYS[1]), redis.call('ZCARD', KEYS[2])}
"""

# Kept streams. P is the kind's prefix. `P r:<id>` is a record: owner (while it is written), log,
# tenant, number (of the owner's last entry), parts, bytes, ended, cancelled, takes, and the fields
# of `streams`. `P p:<id>:<log>` has its entries; `P w:<id>:<log>` is there while somebody reads
# them. `P running` has the ids of records with a job by the end of their owner's lease; other
# records end with the lease. Of kept streams, `P t:<tenant>` has the tenant's by time, `P tenants`
# the bytes of each tenant, `P sizes` those of each stream, `P expiry` when each expires, and
# `P bytes` all bytes. Times are milliseconds.
#
# KEYS: one of P, for its slot. ARGV: operation, P, id, token, lease, keep, then of
#   claim: tenant and fields, by name. Returns what is there, or nothing if it was claimed.
#   append: number, parts with these, most entries, kind, first, sizes, data, deltas. Returns 1 if
#     the entry was added, by this call or one before.
#   renew: Returns whether `append` would add; and whether anybody reads.
#   keep: overhead, most streams of a tenant, most bytes, most entries, fields by name.
#   take: 1, or 0 to take only what was released. Returns one that nobody writes.
STREAMS = """
local op, p, id, token = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local lease, keep = tonumber(ARGV[5]), tonumber(ARGV[6])
local t = redis.call('TIME')
local now = tonumber(t[1]) * 1000 + math.floor(tonumber(t[2]) / 1000)
local record, running = p .. 'r:' .. id, p .. 'running'
local function value(name) return redis.call('HGET', record, name) end
local function entries(one, log) return p .. 'p:' .. one .. ':' .. (log or '') end
local function is_owned() return value('owner') == token end
local function has_job() return redis.call('HEXISTS', record, 'job') == 1 end
local function found()
  return redis.call('HMGET', record, 'log', 'body', 'parts', 'owner', 'ended')
end

local function renew()
  local ttl = lease
  if has_job() then
    ttl = keep
    redis.call('ZADD', running, now + lease, id)
  end
  redis.call('PEXPIRE', record, ttl)
  redis.call('PEXPIRE', entries(id, value('log')), ttl)
end

local function add(log, most, kind, first, sizes, data, deltas)
  redis.call('XADD', entries(id, log), 'MAXLEN', most, '*',
    'k', kind, 'f', first, 's', sizes, 'd', data, 'x', deltas)
end

local function forget(tenant, one)
  local had = redis.call('HGET', p .. 'sizes', one)
  redis.call('ZREM', p .. 't:' .. tenant, one)
  redis.call('ZREM', p .. 'expiry', tenant .. ':' .. one)
  redis.call('HDEL', p .. 'sizes', one)
  if had then
    redis.call('DECRBY', p .. 'bytes', had)
    if tonumber(redis.call('ZINCRBY', p .. 'tenants', -had, tenant)) <= 0 then
      redis.call('ZREM', p .. 'tenants', tenant)
    end
  end
end

local function drop(tenant, one)
  forget(tenant, one)
  local log = redis.call('HGET', p .. 'r:' .. one, 'log')
  return redis.call('DEL', p .. 'r:' .. one, entries(one, log))
end

local function drop_oldest(tenant)
  drop(tenant, redis.call('ZRANGE', p .. 't:' .. tenant, 0, 0)[1])
end

if op == 'claim' then
  local there = found()
  if there[1] then return there end
  redis.call('HSET', record, 'owner', token, 'log', token, unpack(ARGV, 7))
  renew()
  return false
elseif op == 'append' then
  local owner, cancelled, log, before = unpack(
    redis.call('HMGET', record, 'owner', 'cancelled', 'log', 'number'))
  if owner ~= token or cancelled then return 0 end
  if tonumber(before or 0) >= tonumber(ARGV[7]) then return 1 end
  redis.call('HSET', record, 'number', ARGV[7], 'parts', ARGV[8])
  redis.call('HINCRBY', record, 'bytes', #ARGV[13] + #ARGV[14])
  add(log, unpack(ARGV, 9, 14))
  if ARGV[10] == 'E' then redis.call('HSET', record, 'ended', 1) end
  if ARGV[7] == '1' then renew() end
  return 1
elseif op == 'renew' then
  if not is_owned() or value('cancelled') then return {0, 0} end
  renew()
  return {1, redis.call('EXISTS', p .. 'w:' .. id .. ':' .. value('log'))}
elseif op == 'keep' then
  if not is_owned() then return 0 end
  if has_job() then add(value('log'), ARGV[10] + 1, 'E', value('parts') or 0, '', '', '') end
  redis.call('HDEL', record, 'owner', 'job', 'cancelled', 'number', 'takes')
  redis.call('ZREM', running, id)
  if #ARGV > 10 then redis.call('HSET', record, unpack(ARGV, 11)) end
  redis.call('PEXPIRE', record, keep)
  redis.call('PEXPIRE', entries(id, value('log')), keep)
  local size = tonumber(ARGV[7]) + (value('bytes') or 0)
  for _, name in ipairs({'head', 'input'}) do
    size = size + redis.call('HSTRLEN', record, name)
  end
  for _, each in ipairs(redis.call('ZRANGEBYSCORE', p .. 'expiry', '-inf', now, 'LIMIT', 0, 100)) do
    local at = string.find(each, ':')
    forget(string.sub(each, 1, at - 1), string.sub(each, at + 1))
  end
  local tenant = value('tenant')
  forget(tenant, id)
  redis.call('ZADD', p .. 't:' .. tenant, now, id)
  redis.call('PEXPIRE', p .. 't:' .. tenant, keep)
  redis.call('ZADD', p .. 'expiry', now + keep, tenant .. ':' .. id)
  redis.call('HSET', p .. 'sizes', id, size)
  redis.call('INCRBY', p .. 'bytes', size)
  redis.call('ZINCRBY', p .. 'tenants', size, tenant)
  while redis.call('ZCARD', p .. 't:' .. tenant) > tonumber(ARGV[8]) do drop_oldest(tenant) end
  while tonumber(redis.call('GET', p .. 'bytes')) > tonumber(ARGV[9]) do
    drop_oldest(redis.call('ZREVRANGE', p .. 'tenants', 0, 0)[1])
  end
  return 1
elseif op == 'release' then
  if not is_owned() then return 0 end
  if not has_job() then return redis.call('DEL', record) end
  return redis.call('ZADD', running, 0, id)
elseif op == 'find' then
  return found()
elseif op == 'cancel' then
  return value('owner') and redis.call('HSET', record, 'cancelled', 1)
elseif op == 'delete' then
  redis.call('ZREM', running, id)
  return value('log') and drop(value('tenant'), id)
end

local latest = ARGV[7] == '1' and now or 0
local first = redis.call('ZRANGEBYSCORE', running, '-inf', latest, 'WITHSCORES', 'LIMIT', 0, 1)
if not first[1] then return false end
id = first[1]
record = p .. 'r:' .. id
if not has_job() then
  redis.call('ZREM', running, id)
  return false
end
redis.call('HSET', record, 'owner', token)
redis.call('HDEL', record, 'number')
redis.call('HINCRBY', record, 'takes', tonumber(first[2]) > 0 and 1 or 0)
renew()
return {id, unpack(redis.call('HMGET', record, 'tenant', 'takes', 'parts', 'log', 'input', 'job'))}
"""

"""What runs inside Redis, in Lua: each script is one atomic step. Used by all `redis_` modules.

The rules of meters are those of `memory_meters`; tests compare them. Numbers are whole and below
2^53.
"""

from __future__ import annotations

# KEYS: the tenant's leases, then one key for each meter; all have the same hash tag.
# ARGV: operation, time (0: the server's), instance, lease in us, then fields for each meter.
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

local function forget(key, part)
  local found = redis.call('HMGET', key, 's', 'o')
  local total, oldest = tonumber(found[1] or 0), tonumber(found[2] or part)
  local first = part - PARTS
  if oldest < first - PARTS - 1 then
    redis.call('DEL', key)
    return 0, part
  end
  if oldest < first then
    for each = oldest, first - 1 do
      local taken = redis.call('HGET', key, text(each))
      if taken then
        total = total - tonumber(taken)
        redis.call('HDEL', key, text(each))
      end
    end
    oldest = first
    redis.call('HSET', key, 's', text(total), 'o', text(oldest))
  end
  return total, oldest
end

local function running(key)
  local sum = 0
  local fields = redis.call('HGETALL', key)
  for i = 1, #fields, 2 do
    local held = tonumber(fields[i + 1])
    if fields[i] == 'u' then
      sum = sum + held
    elseif fields[i] == instance then
      sum = sum + held
    else
      local till = redis.call('HGET', KEYS[1], fields[i])
      if till and tonumber(till) > now then
        sum = sum + held
      else
        redis.call('HDEL', key, fields[i])
      end
    end
  end
  return sum
end

local function add_held(key, amount)
  local held = math.max(tonumber(redis.call('HGET', key, instance) or 0) + amount, 0)
  if held == 0 then
    redis.call('HDEL', key, instance)
  else
    redis.call('HSET', key, instance, text(held))
  end
end

local function add_part(key, part, amount, span)
  redis.call('HINCRBY', key, text(part), text(amount))
  redis.call('HINCRBY', key, 's', text(amount))
  local oldest = tonumber(redis.call('HGET', key, 'o') or part)
  redis.call('HSET', key, 'o', text(math.min(oldest, part)))
  keep(key, span + span / PARTS)
end

redis.call('HSET', KEYS[1], instance, text(now + lease))
redis.call('PEXPIRE', KEYS[1], text(math.ceil(lease / 1000) + IDLE_MS))
"""

# Fields of a meter: kind, limit, span, opening, amount.
RESERVE = (
    METERS
    + """
local count = #KEYS - 1
local meters, longest, at = {}, 0, 0
for i = 1, count do
  local base = 4 + (i - 1) * 5
  local m = {
    key = KEYS[i + 1], kind = tonumber(ARGV[base + 1]), limit = tonumber(ARGV[base + 2]),
    span = tonumber(ARGV[base + 3]), opening = ARGV[base + 4], amount = tonumber(ARGV[base + 5])
  }
  meters[i] = m
  local wait = 0
  if m.kind == RATE then
    m.most = m.limit * m.span
    local full = tonumber(redis.call('GET', m.key) or 0)
    m.full = math.min(math.max(full, now), now + m.most)
    wait = math.max(m.full + m.amount * m.span - now - m.most, 0)
  elseif m.kind == WINDOW then
    m.width = m.span / PARTS
    m.part = math.floor(now / m.width)
    m.total, m.oldest = forget(m.key, m.part)
    local surplus = m.total + m.amount - m.limit
    if m.amount > 0 and surplus > 0 and m.amount <= m.limit then
      for each = m.oldest, m.part do
        surplus = surplus - tonumber(redis.call('HGET', m.key, text(each)) or 0)
        if surplus <= 0 then
          wait = (each + 1 + PARTS) * m.width - now
          break
        end
      end
    end
  else
    if m.kind == PERIOD and redis.call('HEXISTS', m.key, 'u') == 0 then
      redis.call('HSET', m.key, 'u', m.opening)
      keep(m.key, m.span - now)
    end
    m.total = running(m.key)
    if m.amount > 0 and m.total + m.amount > m.limit then
      wait = m.kind == GAUGE and GAUGE_WAIT or math.max(m.span - now, 1)
    end
  end
  if m.amount == 0 then wait = 0 elseif m.amount > m.limit then wait = NEVER end
  if wait > longest then longest, at = wait, i - 1 end
end
local answer = {longest, at}
for i = 1, count do
  local m = meters[i]
  local amount = longest > 0 and 0 or m.amount
  local mark, left, reset = 0, 0, 0
  if m.kind == RATE then
    local full = m.full + amount * m.span
    if amount > 0 then
      redis.call('SET', m.key, text(full), 'PX', text(math.ceil((full - now) / 1000) + IDLE_MS))
    end
    mark, left, reset = full, math.floor((m.most - full + now) / m.span), full - now
  elseif m.kind == WINDOW then
    if amount > 0 then
      add_part(m.key, m.part, amount, m.span)
      redis.call('HSET', m.key, 'n', text(m.part))
    end
    local newest = tonumber(redis.call('HGET', m.key, 'n') or -1)
    if newest >= m.part - PARTS then reset = (newest + 1 + PARTS) * m.width - now end
    mark, left = m.part, m.limit - m.total - amount
  else
    if amount > 0 then
      add_held(m.key, amount)
      keep(m.key, m.kind == PERIOD and m.span - now or LONGEST_RUN)
    end
    left = m.limit - m.total - amount
    if m.kind == PERIOD then reset = m.span - now end
  end
  answer[#answer + 1] = mark
  answer[#answer + 1] = math.max(left, 0)
  answer[#answer + 1] = math.max(reset, 0)
end
return answer
"""
)

# Fields of a meter: kind, span, opening, mark, reserved, amount. Operation `settle`, `amend`, or
# `add`: an amount that was counted while this state could not be reached, or was lost. Returns the
# indexes of the meters whose keys are broken, and did not change.
CHANGE = (
    METERS
    + """
local function change(i)
  local base, key = 4 + (i - 1) * 6, KEYS[i + 1]
  local kind, span, opening = tonumber(ARGV[base + 1]), tonumber(ARGV[base + 2]), ARGV[base + 3]
  local mark = tonumber(ARGV[base + 4])
  local reserved, amount = tonumber(ARGV[base + 5]), tonumber(ARGV[base + 6])
  if kind == RATE then
    local full = redis.call('GET', key)
    if full and tonumber(full) == mark and amount ~= reserved then
      local new = text(tonumber(full) + (amount - reserved) * span)
      redis.call('SET', key, new, 'KEEPTTL')
    end
  elseif kind == WINDOW then
    local part = math.floor(now / (span / PARTS))
    forget(key, part)
    if op == 'add' then
      if mark >= part - PARTS and mark <= part then
        add_part(key, mark, amount, span)
        local newest = tonumber(redis.call('HGET', key, 'n') or -1)
        redis.call('HSET', key, 'n', text(math.max(newest, mark)))
      end
    elseif redis.call('HEXISTS', key, text(mark)) == 1 then
      redis.call('HINCRBY', key, text(mark), text(amount - reserved))
      redis.call('HINCRBY', key, 's', text(amount - reserved))
    end
  else
    if op == 'amend' then
      add_held(key, amount - reserved)
    elseif op == 'settle' then
      add_held(key, -reserved)
    end
    if kind == PERIOD then
      if redis.call('HEXISTS', key, 'u') == 0 then redis.call('HSET', key, 'u', opening) end
      if op ~= 'amend' then redis.call('HINCRBY', key, 'u', text(amount)) end
      keep(key, span - now)
    end
  end
end
local refused = {}
for i = 1, #KEYS - 1 do
  if not pcall(change, i) then refused[#refused + 1] = i - 1 end
end
return refused
"""
)

# Fields of a meter: what this instance holds of it. KEYS: gauges and periods only. A broken key
# keeps none of the others from being set.
HOLD = (
    METERS
    + """
local function hold(i)
  local held = ARGV[4 + i]
  if held == '0' then
    redis.call('HDEL', KEYS[i + 1], instance)
  else
    redis.call('HSET', KEYS[i + 1], instance, held)
    redis.call('PERSIST', KEYS[i + 1])
    redis.call('PEXPIRE', KEYS[i + 1], text(math.ceil(lease / 1000) + 32 * 86400000))
  end
end
for i = 1, #KEYS - 1 do pcall(hold, i) end
return 1
"""
)

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

# Idempotent answers. P is ANSWERS of `redis_connection`. `P r:<id>` is a record (token, body,
# state, head, parts), `P p:<id>:<token>` the stream of its parts, `P t:<tenant>` the tenant's kept
# answers by time, `P tenants` the bytes of each tenant, `P sizes` those of each answer, `P expiry`
# when each answer expires, `P bytes` all bytes. Times are milliseconds.

# ARGV: token, body, lease. Returns what is there, or nothing if it was claimed.
CLAIM = """
local record = KEYS[1]
local found = redis.call('HMGET', record, 'token', 'body', 'state', 'head', 'parts')
if found[1] then return found end
redis.call('HSET', record, 'token', ARGV[1], 'body', ARGV[2], 'state', 'running')
redis.call('PEXPIRE', record, ARGV[3])
return false
"""

# ARGV: token, lease. Whether the claim still stands; and whether anybody reads the copy.
RENEW = """
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[1] then return {0, 0} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return {1, redis.call('EXISTS', KEYS[3])}
"""

# ARGV: token. Only of a running answer; those who read its parts read on until they expire.
RELEASE = """
local found = redis.call('HMGET', KEYS[1], 'token', 'state')
if found[1] == ARGV[1] and found[2] == 'running' then redis.call('DEL', KEYS[1]) end
return 0
"""

# ARGV: P, id, token, tenant, head, parts, size, now, keep, most answers, most bytes.
KEEP = """
local p, id, tenant, size = ARGV[1], ARGV[2], ARGV[4], tonumber(ARGV[7])
local now, keep = tonumber(ARGV[8]), tonumber(ARGV[9])
if redis.call('HGET', KEYS[1], 'token') ~= ARGV[3] then return 0 end
local function forget(owner, one)
  local had = redis.call('HGET', p .. 'sizes', one)
  redis.call('ZREM', p .. 't:' .. owner, one)
  redis.call('ZREM', p .. 'expiry', owner .. ':' .. one)
  redis.call('HDEL', p .. 'sizes', one)
  if had then
    redis.call('DECRBY', p .. 'bytes', had)
    if tonumber(redis.call('ZINCRBY', p .. 'tenants', -had, owner)) <= 0 then
      redis.call('ZREM', p .. 'tenants', owner)
    end
  end
end
local function drop_oldest(owner)
  local one = redis.call('ZRANGE', p .. 't:' .. owner, 0, 0)[1]
  forget(owner, one)
  local token = redis.call('HGET', p .. 'r:' .. one, 'token')
  if token then redis.call('DEL', p .. 'r:' .. one, p .. 'p:' .. one .. ':' .. token) end
end
for _, each in ipairs(redis.call('ZRANGEBYSCORE', p .. 'expiry', '-inf', now, 'LIMIT', 0, 100)) do
  local at = string.find(each, ':')
  forget(string.sub(each, 1, at - 1), string.sub(each, at + 1))
end
forget(tenant, id)
redis.call('HSET', KEYS[1], 'state', 'kept', 'head', ARGV[5], 'parts', ARGV[6])
redis.call('PEXPIRE', KEYS[1], keep)
redis.call('PEXPIRE', KEYS[2], keep)
redis.call('ZADD', p .. 't:' .. tenant, now, id)
redis.call('PEXPIRE', p .. 't:' .. tenant, keep)
redis.call('ZADD', p .. 'expiry', now + keep, tenant .. ':' .. id)
redis.call('HSET', p .. 'sizes', id, size)
redis.call('INCRBY', p .. 'bytes', size)
redis.call('ZINCRBY', p .. 'tenants', size, tenant)
while redis.call('ZCARD', p .. 't:' .. tenant) > tonumber(ARGV[10]) do drop_oldest(tenant) end
while tonumber(redis.call('GET', p .. 'bytes')) > tonumber(ARGV[11]) do
  drop_oldest(redis.call('ZREVRANGE', p .. 'tenants', 0, 0)[1])
end
return 1
"""

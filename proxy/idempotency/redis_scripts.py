"""The scripts that change records in Redis, each at once. Used by `redis_records`.

All keys have one hash tag, so that a cluster keeps them together. P is the prefix. `P r:<id>` is a
record (token, body, state, head, parts), `P p:<id>:<token>` the stream of its
parts, `P t:<tenant>` the
tenant's kept answers by time, `P tenants` the bytes of each tenant, `P sizes` those of each answer,
`P expiry` when each answer expires, `P bytes` all bytes. Times are milliseconds.
"""

from __future__ import annotations

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

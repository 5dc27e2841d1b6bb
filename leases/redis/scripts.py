"""Compare-and-swap as scripts, each of which Redis runs with no other command in between.

A record is the field of a hash: ``VERSION`` newline ``EPOCH`` newline ``CHECKPOINT``
newline ``RECORD``, the last two in JSON, which has no newlines of its own. The continuation
of a lease is in a second hash under the same field, so that a listing does not read it.
``CHECKPOINT`` is what a checkpoint changes of a lease beside it.

A script that finds its own new version answers as it did when it wrote it: the client may
have lost that answer and sent the script again.

Every script has the keys *records* and *continuations*, and those that write begin with the
arguments *field*, *new version* and *old version*. It answers what is stored then, and the
continuation; or nothing if it was refused.

For leases there are two keys more: *changes*, a sorted set of fields by the moment of their
last write, and *newest*, the last of those moments. They are microseconds of the server's
clock, and each is later than the one before: a counter would begin again where a server has
lost its last writes, or all it kept, and give new writes the numbers of what hosts have seen
already.
"""

_NOTED = """
local function note(field)
  if not KEYS[3] then return end
  local now, newest = redis.call('TIME'), tonumber(redis.call('GET', KEYS[4]) or '') or 0
  local at = math.max(newest + 1, now[1] * 1000000 + now[2])
  at = string.format('%.0f', at)
  redis.call('SET', KEYS[4], at)
  redis.call('ZADD', KEYS[3], at, field)
end
"""

_BEGIN = (
    _NOTED
    + """
local field, new, old = ARGV[1], ARGV[2], ARGV[3]
local stored = redis.call('HGET', KEYS[1], field)
local version, epoch, record
if stored then
  version, epoch, record = string.match(stored, '^([^\\n]*)\\n([^\\n]*)\\n[^\\n]*\\n(.*)$')
end
local function answer()
  return {redis.call('HGET', KEYS[1], field), redis.call('HGET', KEYS[2], field)}
end
if version == new then return answer() end
"""
)

GET = "return {redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HGET', KEYS[2], ARGV[1])}"
"""A record and its continuation, as they are together; takes the field alone."""

INSERT = (
    _BEGIN
    + """
if stored then return {} end
redis.call('HSET', KEYS[1], field, ARGV[4])
redis.call('HDEL', KEYS[2], field)
if ARGV[5] then redis.call('HSET', KEYS[2], field, ARGV[5]) end
note(field)
return answer()
"""
)
"""Then the value, and the continuation if there is one."""

UPDATE = (
    _BEGIN
    + """
if version ~= old then return {} end
redis.call('HSET', KEYS[1], field, ARGV[4])
if ARGV[5] then redis.call('HSET', KEYS[2], field, ARGV[5]) end
note(field)
return answer()
"""
)
"""Likewise; without a continuation the stored one stays."""

ADVANCE = (
    _BEGIN
    + """
if version ~= old or epoch ~= ARGV[4] then return {} end
redis.call('HSET', KEYS[1], field, new .. '\\n' .. epoch .. '\\n' .. ARGV[5] .. '\\n' .. record)
redis.call('HSET', KEYS[2], field, ARGV[6])
note(field)
return answer()
"""
)
"""Then the epoch, ``CHECKPOINT`` and the continuation."""

DELETE = """
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if not stored or string.match(stored, '^([^\\n]*)\\n') ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
if KEYS[3] then redis.call('ZREM', KEYS[3], ARGV[1]) end
return 1
"""
"""Keys as above; field and version. Answers whether it was deleted."""

_CHANGED = """
local function changed(token)
  local newest, since = redis.call('GET', KEYS[4]) or '0', tonumber(token)
  local total = redis.call('HLEN', KEYS[1])
  if not since or (tonumber(newest) or 0) < since then
    return {newest, total, redis.call('HVALS', KEYS[1])}
  end
  local found = {}
  for _, field in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. token, '+inf')) do
    local record = redis.call('HGET', KEYS[1], field)
    if record then found[#found + 1] = record end
  end
  return {newest, total, found}
end
"""

CHANGES = _CHANGED + "return changed(ARGV[1])"
"""The moment of the last listing, or nothing for all. Answers the moment of the newest change,
how many records there are, and those that were written since; all of them where the moment is
later than the newest, because the server has lost that.
"""

FLEET = (
    _CHANGED
    + """
local token, field, new, old, value = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local written = false
if field then
  local stored = redis.call('HGET', KEYS[5], field)
  local version = stored and string.match(stored, '^([^\\n]*)\\n') or ''
  if version == old then
    redis.call('HSET', KEYS[5], field, value)
    written = value
  elseif version == new then
    written = stored
  end
end
return {changed(token), redis.call('HVALS', KEYS[5]), written}
"""
)
"""Keys of the leases, as above, and of the records of members. The moment as for ``CHANGES``;
and to write a heartbeat field, new version, old version (or nothing) and value. Answers as
``CHANGES``, then all members, and the record of the heartbeat as written, or nothing.
"""

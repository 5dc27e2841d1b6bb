"""Compare-and-swap as scripts, each of which Redis runs with no other command in between.

A record is the field of a hash, one hash for each kind: ``VERSION`` newline ``BODY``. Its
position is in a second hash under the same field, so that a listing does not read it. A sorted
set has the fields of a kind by the moment of their last write, and *newest* is the last of
those moments, of all kinds. They are microseconds of the server's clock, and each is later than
the one before: a counter would begin again where a server has lost its last writes, or all it
kept, and give new writes the numbers of what hosts have seen already.

A script that finds its own new version answers as it did when it wrote it: the client may
have lost that answer and sent the script again.

The keys of each script are *newest*, and three for each kind: *records*, *positions* and
*changes*.
"""

_WRITE = """
local function stored_version(records, field)
  local stored = redis.call('HGET', records, field)
  return stored and string.match(stored, '^([^\\n]*)\\n') or ''
end
local function whole(n, field)
  return {redis.call('HGET', KEYS[n], field), redis.call('HGET', KEYS[n + 1], field)}
end
local function put(n, field, old, new, body, position)
  local version = stored_version(KEYS[n], field)
  if version == new then return whole(n, field) end
  if version ~= old then return {} end
  redis.call('HSET', KEYS[n], field, new .. '\\n' .. body)
  if position then redis.call('HSET', KEYS[n + 1], field, position) end
  local now, newest = redis.call('TIME'), tonumber(redis.call('GET', KEYS[1]) or '') or 0
  local at = string.format('%.0f', math.max(newest + 1, now[1] * 1000000 + now[2]))
  redis.call('SET', KEYS[1], at)
  redis.call('ZADD', KEYS[n + 2], at, field)
  return whole(n, field)
end
"""

GET = "return {redis.call('HGET', KEYS[2], ARGV[1]), redis.call('HGET', KEYS[3], ARGV[1])}"
"""A record and its position, as they are together; takes the field."""

PUT = _WRITE + "return put(2, ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5])"
"""Field, old version (or nothing, to insert), new version, body, and the position if there is
one; without it the stored one stays. Answers the record and its position, or nothing if
refused.
"""

DELETE = (
    _WRITE
    + """
if ARGV[2] == '' or stored_version(KEYS[2], ARGV[1]) ~= ARGV[2] then return 0 end
for n, command in ipairs({'HDEL', 'HDEL', 'ZREM'}) do
  redis.call(command, KEYS[n + 1], ARGV[1])
end
return 1
"""
)
"""Field and version. Answers whether it was deleted."""

LIST = (
    _WRITE
    + """
local token, kind = ARGV[1], tonumber(ARGV[2])
local written = {}
if kind then written = put(kind, ARGV[3], ARGV[4], ARGV[5], ARGV[6]) end
local newest, since = redis.call('GET', KEYS[1]) or '0', tonumber(token)
local all = not since or (tonumber(newest) or 0) < since
local total, found = 0, {}
for n = 2, #KEYS, 3 do
  total = total + redis.call('HLEN', KEYS[n])
  if all then
    found[#found + 1] = redis.call('HGETALL', KEYS[n])
  else
    local records = {}
    for _, field in ipairs(redis.call('ZRANGEBYSCORE', KEYS[n + 2], '(' .. token, '+inf')) do
      local record = redis.call('HGET', KEYS[n], field)
      if record then
        records[#records + 1] = field
        records[#records + 1] = record
      end
    end
    found[#found + 1] = records
  end
end
return {newest, total, found, written}
"""
)
"""The moment of the last listing, or nothing for all; and to write one record first, which of
the keys has its kind, field, old version, new version and body. Answers the moment of the
newest write, how many records there are, for each kind the fields and records that were written
since in turns (all where the moment is later than the newest, because the server has lost
that), and what was written.
"""

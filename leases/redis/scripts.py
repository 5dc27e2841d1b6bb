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
"""

_BEGIN = """
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

GET = "return {redis.call('HGET', KEYS[1], ARGV[1]), redis.call('HGET', KEYS[2], ARGV[1])}"
"""A record and its continuation, as they are together; takes the field alone."""

INSERT = (
    _BEGIN
    + """
if stored then return {} end
redis.call('HSET', KEYS[1], field, ARGV[4])
redis.call('HDEL', KEYS[2], field)
if ARGV[5] then redis.call('HSET', KEYS[2], field, ARGV[5]) end
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
return answer()
"""
)
"""Then the epoch, ``CHECKPOINT`` and the continuation."""

DELETE = """
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if not stored or string.match(stored, '^([^\\n]*)\\n') ~= ARGV[2] then return 0 end
redis.call('HDEL', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
return 1
"""
"""Keys as above; field and version. Answers whether it was deleted."""

"""Which part and which virtual part a key belongs to. Frozen: part of the file format.

The hash is BLAKE2b of the key in UTF-8 with a digest of 16 bytes, no key, salt or person.
The part is its first four bytes, big-endian, modulo the number of parts; the virtual part
is its first byte. If any of this changed, a key's next change would land in another
partition than its last, and order by key would be lost in every log there is. A new
scheme therefore needs a new format version, and only new logs may use it.
"""

from hashlib import blake2b

VIRTUAL_PARTS = 256
DEFAULT_PARTS = 12
MAX_PARTS = 4096


def place_of(key: str, parts: int) -> tuple[int, int]:
    """Return the part and the virtual part of a key.

    Raise ``UnicodeEncodeError`` for text that has no UTF-8, such as half a surrogate pair.
    """
    digest = _digest(key)
    return int.from_bytes(digest[:4], "big") % parts, digest[0]


def virtual_part_of(key: str) -> int:
    return _digest(key)[0]


def _digest(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=16).digest()

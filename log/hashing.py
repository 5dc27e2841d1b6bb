"""Which part and which virtual part a key belongs to. Frozen: part of the file format.

The hash is BLAKE2b of the key in UTF-8 with a digest of 16 bytes, no key, salt or person.
The part is its first four bytes, big-endian, modulo the number of parts; the virtual part
is its first byte. If any of this changed, a key's next change would land in another
partition than its last, and order by key would be lost in every log there is. A new
scheme therefore needs a new format version, and only new logs may use it.
"""

import struct
from hashlib import blake2b

VIRTUAL_PARTS = 256
DEFAULT_PARTS = 12
MAX_PARTS = 4096
_begun = blake2b(digest_size=16).copy
_WORD = struct.Struct(">I").unpack_from


def place_of(key: str, parts: int) -> tuple[int, int]:
    """Return the part and the virtual part of a key.

    Raise ``UnicodeEncodeError`` for text that has no UTF-8, such as half a surrogate pair.
    """
    found = _begun()
    found.update(key.encode())
    word: int = _WORD(found.digest())[0]
    return word % parts, word >> 24


def virtual_part_of(key: str) -> int:
    return place_of(key, 1)[1]

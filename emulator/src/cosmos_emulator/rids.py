"""Resource ids (``_rid``): bytes in base64, where a child's begin with its parent's.

A database has 4 bytes, a container 8, an item, a range or a script 16. ``/`` is written as
``-``, so that a resource id fits into a path.
"""

import base64
import secrets

_CONTAINER_BIT = 0x80
_NUMBER_BITS = 60
_RANGE_BITS = 0x5  # the high half of an id's last byte says what the child is


def new_database_rid() -> str:
    raw = bytearray(secrets.token_bytes(4))
    raw[3] = 0
    return _text(bytes(raw))


def new_container_rid(database: str) -> str:
    raw = bytearray(secrets.token_bytes(4))
    raw[0] |= _CONTAINER_BIT
    return _text(_raw(database) + bytes(raw))


def new_user_rid(database: str) -> str:
    raw = bytearray(secrets.token_bytes(4))
    raw[0] &= ~_CONTAINER_BIT
    return _text(_raw(database) + bytes(raw))


def new_permission_rid(user: str) -> str:
    return _text(_raw(user) + secrets.token_bytes(8))


def item_rid(container: str, number: int) -> str:
    return _text(_raw(container) + number.to_bytes(8, "little"))


def item_number(container: str, rid: str) -> int | None:
    """Return the number of an item of a container by its resource id, if it is one."""
    try:
        raw, owner = _raw(rid), _raw(container)
    except ValueError:  # a name may be anything
        return None
    is_item = len(raw) == len(owner) + 8 and raw.startswith(owner)
    return int.from_bytes(raw[len(owner) :], "little") if is_item else None


def range_rid(container: str, number: int) -> str:
    return _typed(container, number, _RANGE_BITS)


def new_script_rid(container: str, type_bits: int) -> str:
    return _typed(container, secrets.randbits(_NUMBER_BITS), type_bits)


def _typed(container: str, number: int, type_bits: int) -> str:
    return _text(_raw(container) + (number | type_bits << _NUMBER_BITS).to_bytes(8, "little"))


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode().replace("/", "-")


def _raw(text: str) -> bytes:
    return base64.b64decode(text.replace("-", "/"), validate=True)

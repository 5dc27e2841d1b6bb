"""Bytes that others wrote become values here, and nowhere else among brokers.

``msgspec`` says in two ways that bytes are no such value: a text that is no UTF-8 is none of
its own errors. A caller that decodes by hand misses one of the two.
"""

from typing import TypeVar

import msgspec

T = TypeVar("T")


class Undecodable(ValueError):
    """The bytes are no value of this kind. The text says why."""


def from_json(data: bytes | bytearray, kind: type[T]) -> T:
    """Raise ``Undecodable``."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Undecodable(str(error)) from error


def from_msgpack(data: bytes | bytearray | memoryview, kind: type[T]) -> T:
    """Raise ``Undecodable``."""
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Undecodable(str(error)) from error

"""JSON lines as records of an event log: what is taken from a line, and what is wrong."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import MAX_TIME_US, MIN_TIME_US, Operation
from changefeed.feeds.timestamps import instant_us
from changefeed.log.records import OPERATIONS, RECORD_BYTES, Record
from changefeed.runtime.errors import UserError

MAX_LINE = RECORD_BYTES - 64 * 1024
"""In bytes; a record needs some room besides the line that is its body."""

_BOM = b"\xef\xbb\xbf"
_decode = msgspec.json.Decoder().decode
_ABSENT = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldNames:
    """The fields of a line with its key, id, time and operation; inner fields by dots."""

    key: str
    id: str | None = None
    time: str | None = None
    operation: str | None = None


class LineSplitter:
    """Cuts blocks of bytes into lines. What follows the last newline waits for more.

    A line is put together once, when its end has come: its cost grows with its length, and
    not with the number of blocks it came in.
    """

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._is_too_long = False

    def cut(self, block: bytes) -> Sequence[bytes]:
        """Return the lines that are complete with ``block``; all of them, if it is empty.

        Of one that is too long comes what there is when that shows, and no more of it.
        """
        first, *others = block.split(b"\n")
        lines = self._held(first)
        if others:
            lines += self._ended()
            *whole, last = others
            lines += whole
            lines += self._held(last)
        elif not block and self._chunks:
            lines += self._ended()
        return lines

    def _held(self, chunk: bytes) -> list[bytes]:
        """Keep the beginning of a line; return it if it is too long already."""
        if self._is_too_long:
            return []
        if chunk:
            self._chunks.append(chunk)
            self._size += len(chunk)
        if self._size <= MAX_LINE:
            return []
        found = self._ended()
        self._is_too_long = True
        return found

    def _ended(self) -> list[bytes]:
        """Return the line that ends here, unless it was returned as too long."""
        lines = [] if self._is_too_long else [b"".join(self._chunks)]
        self._chunks, self._size, self._is_too_long = [], 0, False
        return lines


def record_of(line: bytes, fields: FieldNames) -> Record | None:
    """Make a record of one line, which is its body; ``None`` for a blank one.

    Raise ``UserError`` for what is no JSON object or lacks a field.
    """
    body = line.removeprefix(_BOM).strip()
    if not body:
        return None
    if len(body) > MAX_LINE:
        raise UserError(f"it is longer than {MAX_LINE} bytes")
    try:
        value = _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"it is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError("it is JSON, but not an object")
    return Record(
        key=_text(value, fields.key),
        id=None if fields.id is None else _text(value, fields.id),
        body=body,
        committed_us=_time_us(value, fields.time),
        operation=_operation(value, fields.operation),
    )


def _field(value: Any, name: str) -> Any:
    """Find a field by its whole name, or else by the names between the dots."""
    if isinstance(value, dict) and name in value:
        return value[name]
    outer, dot, inner = name.partition(".")
    if not dot or not isinstance(value, dict) or outer not in value:
        return _ABSENT
    return _field(value[outer], inner)


def _text(value: Any, name: str) -> str:
    found = _field(value, name)
    if isinstance(found, str):
        text = found
    elif isinstance(found, int | float) and not isinstance(found, bool):
        text = str(found)
    else:
        raise _not(name, found, "text or a number")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise UserError(f"its {name!r} has half a surrogate pair in it") from None
    return text


def _operation(value: Any, name: str | None) -> Operation:
    if name is None:
        return Operation.INSERT
    found = _field(value, name)
    try:
        return OPERATIONS[OPERATIONS.index(found.lower() if isinstance(found, str) else found)]
    except ValueError:
        known = ", ".join(OPERATIONS)
        raise _not(name, found, f"one of {known}") from None


def _time_us(value: Any, name: str | None) -> int | None:
    if name is None:
        return None
    found = _field(value, name)
    try:
        if isinstance(found, str):
            time_us = instant_us(datetime.fromisoformat(found))
        elif isinstance(found, int | float) and not isinstance(found, bool):
            time_us = round(found * 1_000_000)
        else:
            wanted = "a time with its zone, or seconds since 1970"
            raise _not(name, found, wanted)
    except (ValueError, OverflowError, FeedRefused) as error:
        raise UserError(f"its {name!r} is not a time: {error}") from None
    if MIN_TIME_US <= time_us <= MAX_TIME_US:
        return time_us
    milliseconds = MIN_TIME_US <= time_us // 1000 <= MAX_TIME_US and not isinstance(found, str)
    advice = ": are those milliseconds? Write seconds" if milliseconds else ""
    raise UserError(f"its {name!r} is not a time in the years 1 to 9999{advice}")


def _not(name: str, found: object, wanted: str) -> UserError:
    if found is _ABSENT:
        return UserError(f"it has no {name!r}")
    return UserError(f"its {name!r} is {json.dumps(found)[:60]}, and not {wanted}")

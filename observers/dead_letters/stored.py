"""Dead letters as records of a store: letters can be kept wherever leases can.

A letter is one record, which has its whole text and, beside that, what a person looks for. A
feed may deliver changes that are larger than a store takes in one record. The text of such a
letter lies in records of its own, its parts. They are written first: the letter's record names
them, and is there once they are. Each put makes parts of its own, so nobody removes those of
another.

Limits: a host that is killed while it puts a large letter leaves parts behind. A listing reads
all letters at once: it is for some thousands.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar
from uuid import uuid4

import msgspec

from changefeed.leases.errors import ContainerError
from changefeed.leases.kinds import LETTER_PARTS, LETTERS
from changefeed.leases.store import LONGEST_BODY, Record, Store
from changefeed.observers.dead_letters.letter import (
    DeadLetter,
    LetterId,
    check_same_change,
    in_order,
)

_LONGEST = 400_000
"""Characters of text in one record: they are ASCII, and at most double there."""
_SHOWN = 1000

_FormT = TypeVar("_FormT")
_decoder = msgspec.json.Decoder(DeadLetter)


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    """What is read of a record: the text of the letter, or the keys of its parts."""

    letter: str = ""
    parts: Sequence[str] = ()


class _Shown(_Body, frozen=True, kw_only=True, omit_defaults=True):
    """All that is written: the rest is for people. ``stamp`` is when it failed."""

    range: str
    sequence: int
    key: str
    operation: str
    error: str
    text: str
    attempts: int
    host: str
    stamp: float


class _Part(msgspec.Struct, frozen=True):
    text: str


class StoredDeadLetters:
    """The letters in a store that is open. ``where`` names it, for people."""

    def __init__(self, store: Store, *, where: str) -> None:
        self._store = store
        self._where = where

    async def put(self, letter: DeadLetter) -> None:
        with _os_errors():
            while not await self._inserted(letter):
                kept = await self._get(letter.id)
                if kept is not None:  # else it was removed in between
                    return check_same_change(letter, kept, self._where)
        return None

    async def list(self) -> Sequence[DeadLetter]:
        with _os_errors():
            listed = await self._store.list({LETTERS})
            found = [await self._letter(x) for x in listed.records]
        letters = {x.id: x for x in found if x is not None}  # some stores list one twice
        return sorted(letters.values(), key=in_order)

    async def get(self, letter_id: LetterId) -> DeadLetter | None:
        with _os_errors():
            return await self._get(letter_id)

    async def remove(self, letter_id: LetterId) -> bool:
        with _os_errors():
            found = await self._store.get(LETTERS, letter_id)
            if found is None:
                return False
            parts = self._read(found, _Body).parts
            if not await self._store.delete(LETTERS, letter_id, found.version):
                return False  # another has removed it
            await self._delete_parts(parts)
        return True

    async def _inserted(self, letter: DeadLetter) -> bool:
        text = json.dumps(msgspec.to_builtins(letter))  # ASCII, unlike that of msgspec
        if len(text) <= _LONGEST:
            return await self._store.put(_letter_record(letter, text=text)) is not None
        if await self._store.get(LETTERS, letter.id) is not None:
            return False
        parts = [text[n : n + _LONGEST] for n in range(0, len(text), _LONGEST)]
        name = uuid4().hex
        keys = [f"{name}.{n}" for n in range(len(parts))]
        for key, part in zip(keys, parts, strict=True):
            await self._store.put(_record(LETTER_PARTS, key, _Part(part)))
        # Where this raises, it may have been written: the parts stay.
        if await self._store.put(_letter_record(letter, parts=keys)) is not None:
            return True
        await self._delete_parts(keys)
        return False

    async def _get(self, letter_id: LetterId) -> DeadLetter | None:
        found = await self._store.get(LETTERS, letter_id)
        return None if found is None else await self._letter(found)

    async def _letter(self, record: Record) -> DeadLetter | None:
        """Return the letter of a record; ``None`` if it is being removed."""
        body = self._read(record, _Body)
        text = body.letter if not body.parts else await self._joined(body.parts)
        if text is None:
            stored = await self._store.get(LETTERS, record.key)
            if stored is not None and stored.version == record.version:
                raise self._damage(record, "a part of its text is missing")
            return None
        try:
            return _decoder.decode(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._damage(record, str(error)) from error

    async def _joined(self, keys: Sequence[str]) -> str | None:
        parts = [await self._store.get(LETTER_PARTS, x) for x in keys]
        found = [self._read(x, _Part).text for x in parts if x is not None]
        return "".join(found) if len(found) == len(keys) else None

    async def _delete_parts(self, keys: Sequence[str]) -> None:
        for key in keys:
            part = await self._store.get(LETTER_PARTS, key)
            if part is not None:
                await self._store.delete(LETTER_PARTS, key, part.version)

    def _read(self, record: Record, form: type[_FormT]) -> _FormT:
        try:
            return msgspec.json.decode(record.body, type=form)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._damage(record, str(error)) from error

    def _damage(self, record: Record, reason: str) -> OSError:
        return OSError(
            f"dead letters in {self._where}: the record of {record.kind} {record.key!r} cannot "
            f"be read ({reason}): it is damaged, was changed by hand, or is another program's. "
            "Mend it or delete it; or give dead letters another place (observer.dead_letters)"
        )


def _letter_record(letter: DeadLetter, *, text: str = "", parts: Sequence[str] = ()) -> Record:
    body = _Shown(
        range=_shown(letter.range_id),
        sequence=letter.sequence,
        key=_shown(letter.key),
        operation=letter.change.operation.value,
        error=_shown(letter.failure.kind),
        text=_shown(letter.failure.text),
        attempts=letter.attempts,
        host=_shown(letter.host),
        stamp=letter.failed_us / 1e6,
        letter=text,
        parts=parts,
    )
    return _record(LETTERS, letter.id, body)


def _record(kind: str, key: str, value: msgspec.Struct) -> Record:
    body = msgspec.json.encode(value)
    assert len(body) <= LONGEST_BODY, f"{kind} {key!r}: no store has to take {len(body)} bytes"
    return Record(kind=kind, key=key, body=body)


def _shown(text: str) -> str:
    """Return as much of a text as is looked at; PostgreSQL shows none that has a NUL."""
    return text.replace("\0", "")[:_SHOWN]


@contextmanager
def _os_errors() -> Iterator[None]:
    """Raise what stores raise as ``DeadLetters`` promises."""
    try:
        yield
    except ContainerError as error:
        raise OSError(f"dead letters: {error}") from error

"""Dead letters as records of a store: letters can be kept wherever leases can.

A letter is two kinds of records. Its head is what a listing shows; its text, the whole letter
as JSON, lies in parts, since a feed may deliver changes that are larger than a store takes in
one record. The parts are written first: the head names them, and is there once they are. Each
put makes parts of its own, so nobody removes those of another.

Limits: a host that is killed while it puts a letter leaves parts behind.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar
from uuid import uuid4

import msgspec

from changefeed.observers.dead_letters.letter import (
    DeadLetter,
    LetterHead,
    LetterId,
    check_same_change,
    in_order,
)
from changefeed.runtime.errors import StoreError
from changefeed.stores.kinds import LETTER_PARTS, LETTERS
from changefeed.stores.store import MAX_BODY, Record, Store

_MAX_CHARACTERS = 400_000
"""Characters of text in one record: they are ASCII, and at most double there."""

_FormT = TypeVar("_FormT")


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    """``parts`` are the keys of the text. ``stamp`` is when the letter failed, for people."""

    head: LetterHead
    parts: Sequence[str]
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

    async def list(self) -> Sequence[LetterHead]:
        with _os_errors():
            listed = await self._store.list({LETTERS})
        found = [self._read(x, _Head).head for x in listed.records]
        return sorted({x.id: x for x in found}.values(), key=in_order)  # some list one twice

    async def get(self, letter_id: LetterId) -> DeadLetter | None:
        with _os_errors():
            return await self._get(letter_id)

    async def remove(self, letter_id: LetterId) -> bool:
        with _os_errors():
            found = await self._store.get(LETTERS, letter_id)
            if found is None:
                return False
            parts = self._read(found, _Head).parts
            if not await self._store.delete(LETTERS, letter_id, found.version):
                return False  # another has removed it
            await self._delete_parts(parts)
        return True

    async def _inserted(self, letter: DeadLetter) -> bool:
        text = json.dumps(msgspec.to_builtins(letter))  # ASCII, unlike that of msgspec
        name = uuid4().hex
        keys = []
        for n, begin in enumerate(range(0, len(text), _MAX_CHARACTERS)):
            part = _Part(text[begin : begin + _MAX_CHARACTERS])
            keys.append(f"{name}.{n}")
            await self._store.put(_record(LETTER_PARTS, keys[-1], part))
        # Where this raises, it may have been written: the parts stay.
        if await self._store.put(_head_record(letter, keys)) is not None:
            return True
        await self._delete_parts(keys)
        return False

    async def _get(self, letter_id: LetterId) -> DeadLetter | None:
        record = await self._store.get(LETTERS, letter_id)
        if record is None:
            return None
        text = await self._joined(self._read(record, _Head).parts)
        if text is not None:
            return self._decoded(record, text, DeadLetter)
        stored = await self._store.get(LETTERS, letter_id)
        if stored is not None and stored.version == record.version:
            raise self._damage(record, "a part of its text is missing")
        return None  # it is being removed

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
        return self._decoded(record, record.body, form)

    def _decoded(self, record: Record, text: bytes | str, form: type[_FormT]) -> _FormT:
        try:
            return msgspec.json.decode(text, type=form, strict=False)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self._damage(record, str(error)) from error

    def _damage(self, record: Record, reason: str) -> OSError:
        return OSError(
            f"dead letters in {self._where}: the record of {record.kind} {record.key!r} cannot "
            f"be read ({reason}): it is damaged, was changed by hand, or is another program's. "
            "Mend it or delete it; or give dead letters another place (observer.dead_letters)"
        )


def _head_record(letter: DeadLetter, parts: Sequence[str]) -> Record:
    head = _Head(head=letter.head, parts=parts, stamp=letter.failed_us / 1e6)
    body = msgspec.to_builtins(head)
    # As a text: numbers of more than 53 bits do not survive in items of Cosmos DB.
    body["head"]["sequence"] = str(letter.sequence)
    return _record(LETTERS, letter.id, body)


def _record(kind: str, key: str, value: object) -> Record:
    body = msgspec.json.encode(value)
    assert len(body) <= MAX_BODY, f"{kind} {key!r}: no store has to take {len(body)} bytes"
    return Record(kind=kind, key=key, body=body)


@contextmanager
def _os_errors() -> Iterator[None]:
    """Raise what stores raise as ``DeadLetters`` promises."""
    try:
        yield
    except StoreError as error:
        raise OSError(f"dead letters: {error}") from error

"""From the pages of a change feed, as bytes, to changes.

A page is parsed twice, both times by msgspec: once to cut it into its items without looking
into them, and once for the few fields of each that a change needs. Of a version one image is
looked into. The body of a change is the item as it came, system properties included, so no
JSON is ever written here.

What the modes show:

* latest version: each item once, at its newest version. Whether that was an insert or a
  replace is not said: it is a ``REPLACE``. Deletes do not appear. Times are whole seconds.
* all versions and deletes: every version with its operation, and the image before it where
  the container keeps one. A delete has no body.

One odd document makes no page unreadable. A page that cannot be parsed as a whole is parsed
item by item. Of two properties of one name the last one counts then: a property ``_lsn`` of
the user's own stands before the system's. Half a surrogate pair, which msgspec does not take,
stays in the body as it came. An item that cannot be read even so becomes a
change that is marked ``unreadable``.

Limits: within one transaction, sequences count what the page holds of it. In latest version
mode an item of it that was written again has moved on, so the others may be counted again
when they are read again.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import repeat, starmap
from operator import attrgetter
from typing import Any

import msgspec

from changefeed.feeds.cosmos.documents import Documents, documents_of
from changefeed.feeds.cosmos.keys import key_text, steps_of, walked
from changefeed.feeds.cosmos.positions import sequences
from changefeed.feeds.errors import RangeRefused
from changefeed.feeds.feed import Change, LateChanges, Operation, RangeId, unreadable_text
from changefeed.feeds.raw_pages import Rows
from changefeed.runtime.errors import answered

_OPERATIONS = {
    "create": Operation.INSERT,
    "replace": Operation.REPLACE,
    "delete": Operation.DELETE,
}
_FIELDS = {"id": "id", "_lsn": "lsn", "_ts": "ts"}
_MICROSECONDS = 1_000_000
_ODD = (msgspec.DecodeError, UnicodeError)
_NONE = msgspec.Raw(b"")


class _Metadata(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    operation_type: str
    lsn: int
    crts: int
    id: str | None = None
    partition_key: msgspec.Raw = msgspec.Raw(b"null")


class _Version(msgspec.Struct, frozen=True, gc=False):
    metadata: _Metadata
    current: msgspec.Raw = msgspec.Raw(b"{}")
    previous: msgspec.Raw = _NONE

    @property
    def lsn(self) -> int:
        return self.metadata.lsn

    @property
    def is_delete(self) -> bool:
        return self.metadata.operation_type == "delete"

    @property
    def image(self) -> msgspec.Raw:
        """The image that has the key and the id."""
        return self.previous if self.previous is not _NONE and self.is_delete else self.current


class _PageOfVersions(msgspec.Struct, frozen=True, gc=False):
    documents: list[_Version] = msgspec.field(name="Documents")
    container_rid: str = msgspec.field(name="_rid", default="")


class _Item(msgspec.Struct, frozen=True, gc=False):
    """What the latest version of an item must have, besides its partition key."""

    id: str
    lsn: int = msgspec.field(name="_lsn")
    ts: int = msgspec.field(name="_ts", default=0)


class _Image(msgspec.Struct, frozen=True, gc=False):
    """What may be left of an item among all versions."""

    id: str | None = None
    ts: int = msgspec.field(name="_ts", default=0)
    lsn: int = msgspec.field(name="_lsn", default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unreadable:
    """A document that is no item; what can be told of it nevertheless."""

    reason: str
    lsn: int | None
    id: str

    @classmethod
    def because(cls, error: Exception, values: Mapping[str, Any]) -> "_Unreadable":
        """Take from its values what is as it should be."""
        lsn = values.get("_lsn", values.get("lsn"))
        name = values.get("id")
        return cls(
            reason=str(error),
            lsn=lsn if type(lsn) is int else None,
            id=name if isinstance(name, str) else "",
        )

    def change(self, range_id: RangeId, raw: msgspec.Raw, sequence: int) -> Change:
        return Change(
            range_id=range_id,
            sequence=sequence,
            key="",
            id=self.id,
            operation=Operation.REPLACE,
            body=bytes(raw),
            committed_us=0,
            unreadable=self.reason,
        )


class Changes:
    """Makes the changes of one container, whose partition keys lie at ``key_paths``. ``check``
    raises for the resource id of another one, which each answer names.
    """

    def __init__(
        self,
        key_paths: Sequence[str],
        *,
        all_versions: bool,
        check: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._all_versions = all_versions
        self._check = check
        self._paths = [*map(steps_of, key_paths)]
        heads = [x[0] for x in self._paths]  # only the first step of each path is parsed
        fields = {x: f"key_{n}" for n, x in enumerate(heads)} | _FIELDS
        self._heads = [fields[x] for x in heads]
        self._first_head = attrgetter(self._heads[0])
        self._simple = len(self._paths) == 1 and len(self._paths[0]) == 1
        extra = [
            (fields[x], Any, msgspec.field(name=x, default=msgspec.UNSET))
            for x in dict.fromkeys(heads)
            if x not in _FIELDS
        ]
        base = _Image if all_versions else _Item
        item: Any = msgspec.defstruct("Item", extra, bases=(base,), frozen=True, gc=False)
        items = msgspec.defstruct(
            "Items", [("items", list[item], msgspec.field(name="Documents"))], gc=False
        )
        self._rows: Any = self._rows_of_versions if all_versions else self._rows_of_items
        self._raws: Any = msgspec.json.Decoder(_PageOfVersions if all_versions else Documents)
        self._version = msgspec.json.Decoder(_Version)
        self._item_type = item
        self._item: msgspec.json.Decoder[Any] = msgspec.json.Decoder(item)
        self._items: msgspec.json.Decoder[Any] = msgspec.json.Decoder(items)

    def decode(
        self,
        range_id: RangeId,
        body: bytes,
        *,
        end: int | None = None,
        named: RangeId | None = None,
    ) -> Sequence[Change]:
        """Read the body of one answer, which ends at an LSN, if it is known.

        The changes are named after the range ``named``, if it is another. Raise
        ``RangeRefused`` where the answer is no change feed.
        """
        named = named or range_id
        rows = self._columns(body)
        if rows is None:
            with _what_it_is(range_id):
                return self._one_by_one(named, body, end)
        return LateChanges(len(rows), partial(_changes_of, named, rows))

    def cut(self, range_id: RangeId, body: bytes, *, end: int | None = None) -> Rows:
        """Read the same into columns, without an object for each change.

        Columns have no place for what cannot be read: raise ``RangeRefused`` for it.
        """
        rows = self._columns(body)
        if rows is not None:
            return rows
        with _what_it_is(range_id):
            changes = self._one_by_one(range_id, body, end)
        for change in changes:
            if change.unreadable is not None:
                raise RangeRefused(range_id, unreadable_text(change))
        return Rows.of(changes)

    def _one_by_one(self, range_id: RangeId, body: bytes, end: int | None) -> Sequence[Change]:
        page = documents_of(body)
        self._check(page.container_rid)
        found = [self._read(x) for x in page.documents]
        numbers = sequences(_without_gaps([x.lsn for x in found], end))
        return [
            self._change(range_id, raw, one, sequence)
            for raw, one, sequence in zip(page.documents, found, numbers, strict=True)
        ]

    def _columns(self, body: bytes) -> Rows | None:
        """Read a page as a whole; return ``None`` where a document of it is odd."""
        try:
            page = self._raws.decode(body)
            self._check(page.container_rid)
            if self._all_versions:
                items = [self._item.decode(x.image) for x in page.documents]
            else:
                items = self._items.decode(body).items
            rows: Rows = self._rows(page.documents, items)
        except (*_ODD, KeyError, RecursionError):  # the key is an operation that is not known
            return None
        return rows

    def _read(self, raw: msgspec.Raw) -> Any:
        """Read one item or version; return ``_Unreadable`` where it is neither."""
        if not self._all_versions:
            return self._item_of(raw)
        try:
            found = self._version.decode(raw)
            if found.is_delete:  # its key is read there
                msgspec.json.decode(found.metadata.partition_key)
        except _ODD as error:
            metadata = _values(raw).get("metadata")
            return _Unreadable.because(error, metadata if isinstance(metadata, dict) else {})
        return found

    def _item_of(self, raw: bytes | msgspec.Raw) -> Any:
        try:
            return self._item.decode(raw)
        except _ODD as error:
            values = _values(raw)  # of two properties of one name, the last one
            try:
                found = msgspec.convert(values, self._item_type)
                msgspec.json.encode(found)  # half a surrogate pair in its key has no UTF-8
            except _ODD:
                return _Unreadable.because(error, values)
            return found

    def _change(self, range_id: RangeId, raw: msgspec.Raw, found: Any, sequence: int) -> Change:
        raws: Sequence[Any] = [raw]
        if isinstance(found, _Version):
            raws, found = [found], self._image_of(found)
        if isinstance(found, _Unreadable):
            return found.change(range_id, raw, sequence)
        (change,) = _changes_of(range_id, self._rows(raws, [found]))
        return msgspec.structs.replace(change, sequence=sequence)

    def _image_of(self, version: _Version) -> Any:
        """Return the image that a version is known by; or ``_Unreadable``."""
        head = version.metadata
        if head.operation_type in _OPERATIONS:
            return self._item_of(version.image)
        reason = f"{head.operation_type!r} is not a known operation"
        return _Unreadable(reason=reason, lsn=head.lsn, id=head.id or "")

    def _rows_of_items(self, raws: Sequence[msgspec.Raw], items: Sequence[Any]) -> Rows:
        return Rows(
            sequences=sequences([x.lsn for x in items]),
            keys=self._keys(items),
            ids=[x.id for x in items],
            operations=[Operation.REPLACE] * len(items),
            bodies=raws,
            previous=[None] * len(items),
            committed_us=[x.ts * _MICROSECONDS for x in items],
        )

    def _rows_of_versions(self, versions: Sequence[_Version], images: Sequence[Any]) -> Rows:
        heads = [x.metadata for x in versions]
        operations = [_OPERATIONS[x.operation_type] for x in heads]
        bodies: list[bytes | msgspec.Raw] = [x.current for x in versions]
        keys = [*self._keys(images)]
        for n in [n for n, x in enumerate(versions) if x.is_delete]:
            bodies[n] = b""
            keys[n] = self._key_of_deleted(heads[n], images[n])
        return Rows(
            sequences=sequences([x.lsn for x in heads]),
            keys=keys,
            ids=[x.id or head.id or "" for x, head in zip(images, heads, strict=True)],
            operations=operations,
            bodies=bodies,
            previous=[None if x.previous is _NONE else bytes(x.previous) for x in versions],
            committed_us=[x.crts * _MICROSECONDS for x in heads],
        )

    def _key_of_deleted(self, metadata: _Metadata, image: Any) -> str:
        """Read the key of what is gone from its metadata, by path, or from its last image."""
        values = msgspec.json.decode(metadata.partition_key)
        if not isinstance(values, dict):
            return self._key(image)
        return key_text([walked(values, path) for path in self._paths])

    def _keys(self, items: Sequence[Any]) -> Sequence[str]:
        firsts = [*map(self._first_head, items)]
        plain = self._simple and set(map(type, firsts)) <= {str}
        if plain and "\n=" not in "\n".join(["", *firsts]):  # none is marked, at one look
            return firsts
        return [*map(self._key, items)]

    def _key(self, item: Any) -> str:
        return key_text(
            [
                walked(getattr(item, head), path[1:])
                for head, path in zip(self._heads, self._paths, strict=True)
            ]
        )


def _changes_of(range_id: RangeId, rows: Rows) -> Sequence[Change]:
    fields = zip(
        repeat(range_id, len(rows)),
        rows.sequences,
        rows.keys,
        rows.ids,
        rows.operations,
        map(bytes, rows.bodies),
        rows.committed_us,
        rows.previous,
        strict=True,
    )
    return [*starmap(Change, fields)]


@contextmanager
def _what_it_is(range_id: RangeId) -> Iterator[None]:
    """Say so where an answer is no page of a change feed."""
    try:
        yield
    except (*_ODD, RecursionError) as error:
        text = (
            f"range {range_id!r} answered something else than a page of changes ({error}): "
            f"check that the address leads to a Cosmos DB account"
        )
        raise answered(RangeRefused(range_id, text)) from error


def _without_gaps(lsns: Sequence[int | None], end: int | None) -> list[int]:
    """Place what does not say its LSN beside its neighbour before it, or else behind it."""
    known = [x for x in lsns if x is not None]
    if not known and end is None:
        raise msgspec.DecodeError("no item on it has an _lsn")
    last = known[0] if known else end or 0
    return [last := last if x is None else x for x in lsns]


def _values(raw: bytes | msgspec.Raw) -> Mapping[str, Any]:
    """Return the properties of a document; none where it has none that can be read."""
    try:
        values = json.loads(bytes(raw), parse_float=_finite)
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def _finite(text: str) -> float:
    found = float(text)
    if math.isinf(found):
        raise ValueError(f"{text} is no number of Cosmos DB")
    return found

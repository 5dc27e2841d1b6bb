"""Records of our own beside the leases: members, the feed, ownership and checkpoints kept
apart.

One item for each record. It is written as a whole, if its etag is unchanged. ``attempt`` is new
for every try to write, so that a writer whose answer was lost, and whose client sent the write
again, knows its own.
"""

from collections.abc import Collection, Iterable, Sequence

import msgspec
from msgspec.structs import replace

from changefeed.runtime.calls import for_each
from changefeed.runtime.errors import StoreRefused
from changefeed.runtime.unique_names import unique_name
from changefeed.stores.cosmos.document_ids import DocumentIds
from changefeed.stores.cosmos.items import Document, Items
from changefeed.stores.store import (
    WHOLE,
    Listed,
    Record,
    Store,
    etag_of,
    version_of,
    with_position,
)

_ALL = "SELECT * FROM c WHERE STARTSWITH(c.id, @begin)"


class CosmosStore(Store):
    """The records of one fleet; versions are etags, with a mark where there is a position."""

    def __init__(self, items: Items, names: DocumentIds) -> None:
        self._items = items
        self._names = names

    async def list(
        self,
        kinds: Collection[str],
        since: str = WHOLE,  # noqa: ARG002 - of the protocol: each listing has everything
        put: Record | None = None,
    ) -> Listed:
        written = None if put is None else await self.put(put)

        async def of_kind(kind: str) -> Sequence[Record]:
            begin = self._names.records(kind)
            return self.among(kind, await self._items.query(_ALL, begin=begin))

        assert put is None or put.kind in kinds, f"{put} would not be listed"
        found = await for_each(sorted(kinds), of_kind, at_once=len(kinds))
        return Listed(
            records=[replace(x, position=None) for records in found for x in records],
            total=None,
            token=WHOLE,
            put=written,
        )

    def among(self, kind: str, documents: Iterable[Document]) -> Sequence[Record]:
        """Return the records of a kind and of this fleet among documents of any."""
        begin = self._names.records(kind)
        return [self._record(kind, x) for x in documents if str(x["id"]).startswith(begin)]

    async def get(self, kind: str, key: str) -> Record | None:
        found = await self._items.read(self._names.record(kind, key))
        return None if found is None else self._record(kind, found)

    async def put(self, record: Record) -> Record | None:
        whole = await with_position(self, record)
        return None if whole is None else await self._put(whole)

    async def _put(self, record: Record) -> Record | None:
        document = self._document(record)
        written = await self._written(document, record.version)
        if written is None:
            found = await self._items.read(document["id"])
            ours = found is not None and found.get("attempt") == document["attempt"]
            written = found if ours else None
        return None if written is None else self._record(record.kind, written)

    async def _written(self, document: Document, version: str) -> Document | None:
        if not version:
            return await self._items.create(document)
        etag = await self._items.replace(document, etag_of(version))
        return None if etag is None else {**document, "_etag": etag}

    async def delete(self, kind: str, key: str, version: str) -> bool:
        return await self._items.delete(self._names.record(kind, key), etag_of(version))

    def _document(self, record: Record) -> Document:
        document = {
            "id": self._names.record(record.kind, record.key),
            "key": record.key,
            "record": msgspec.json.decode(record.body),
            "attempt": unique_name(),
        }
        if record.position is not None:
            document["position"] = record.position
        assert document["id"].startswith(self._names.records(record.kind)), (
            f"{document['id']} would not be listed"
        )
        return self._items.keyed(document)

    def _record(self, kind: str, document: Document) -> Record:
        key, position = document.get("key"), document.get("position")
        if not isinstance(key, str) or not isinstance(position, str | None):
            raise StoreRefused(
                f"{document['id']!r} is no {kind} record: give this fleet a prefix, or a "
                "container, of its own"
            )
        return Record(
            kind=kind,
            key=key,
            body=msgspec.json.encode(document.get("record")),
            position=position,
            version=version_of(document["_etag"], position),
        )

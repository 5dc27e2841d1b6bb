"""The container of Cosmos DB over a simulated endpoint: our code, from its items upwards.

The endpoint keeps documents with etags and applies partial updates as the emulator does. It
answers 404, 409 and 412; the network in between throttles, loses answers, and has the client
send a write again.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any, TypeVar, cast

import msgspec

from changefeed.leases.container import LeaseContainer
from changefeed.leases.cosmos import documents
from changefeed.leases.cosmos.container import CosmosLeases
from changefeed.leases.lease import Lease
from changefeed.runtime.errors import StoreUnavailable
from changefeed.stores.cosmos.document_ids import DocumentIds
from changefeed.stores.cosmos.items import Document, Items, Operations
from cosmos_emulator.patching import patched

from .network import Replicas, Server, listing
from .stores import Records, Surroundings

T = TypeVar("T")
_NAMES = DocumentIds("simulated")


class Endpoint:
    """The documents of one container."""

    def __init__(self) -> None:
        self.documents: dict[str, Document] = {}
        self._etags = count(1)

    def find(self, name: str, etag: str) -> Document | None:
        found = self.documents.get(name)
        return None if found is None or found["_etag"] != etag else found

    def since(self, number: int) -> list[Document]:
        """Return what was written after a write, in the order of writing."""
        found = [x for x in self.documents.values() if _number_of(x) > number]
        return _copied(sorted(found, key=_number_of))

    def put(self, document: Mapping[str, Any]) -> Document:
        stored = {**_copied(dict(document)), "_etag": f'"{next(self._etags)}"', "_ts": 0}
        self.documents[stored["id"]] = stored
        return _copied(stored)


class SimulatedItems:
    """The items as one process has them: what ``Items`` has, and nobody in between."""

    partitioned_by_id = True

    def __init__(self, endpoint: Endpoint, around: Surroundings, process_id: str) -> None:
        self._endpoint = endpoint
        self._around = around
        self._process_id = process_id

    def keyed(self, document: Document) -> Document:
        return document

    async def read(self, name: str) -> Document | None:
        return _copied(self._endpoint.documents.get(name))

    async def create(self, document: Document) -> Document | None:
        if document["id"] in self._endpoint.documents:
            return None
        return self._written(None, document)

    async def replace(self, document: Document, etag: str) -> str | None:
        before = self._endpoint.find(document["id"], etag)
        return None if before is None else str(self._written(before, document)["_etag"])

    async def patch(self, name: str, operations: Operations, etag: str) -> str | None:
        written = await self.patch_whole(name, operations, etag)
        return None if written is None else str(written["_etag"])

    async def patch_whole(
        self, name: str, operations: Operations, etag: str
    ) -> Document | None:
        before = self._endpoint.find(name, etag)
        if before is None:
            return None
        return self._written(before, patched(before, [dict(x) for x in operations]))

    async def delete(self, name: str, etag: str) -> bool:
        before = self._endpoint.find(name, etag)
        if before is None:
            return False
        del self._endpoint.documents[name]
        lease = _lease_in(before)
        if lease is not None:
            self._around.checker.deleted(lease, self._process_id)
        return True

    async def query(self, text: str, **parameters: str) -> list[Document]:
        """Know the two queries there are: all, and all but the positions."""
        stored = self._endpoint.documents.values()
        found = [x for x in stored if x["id"].startswith(parameters["begin"])]
        if text != documents.LISTED:
            return _copied(found)
        listed = []
        for document in _copied(found):
            started = isinstance(document.pop("ContinuationToken", None), str)
            listed.append({**document, "started": started})
        return listed

    def _written(self, before: Document | None, document: Mapping[str, Any]) -> Document:
        after = self._endpoint.put(document)
        lease = _lease_in(after)
        if lease is not None:
            was = None if before is None else _lease_in(before)
            self._around.checker.stored(was, lease, self._process_id)
            if before is None:
                self._around.created(self._process_id, lease.range)
        return after


class ChangesServer:
    """The change feed of the container. It may lag behind, and never goes back."""

    def __init__(self, endpoint: Endpoint, around: Surroundings) -> None:
        self._endpoint = endpoint
        self._around = around

    async def changes(self, number: int) -> tuple[list[Document], int]:
        """Return what was written after a write, or some of it, and the last write of that."""
        found, chance = self._endpoint.since(number), self._around.random.random
        if found and chance() < self._around.weather.stale:
            del found[int(chance() * len(found)) :]
        return found, max(map(_number_of, found), default=number)


class SimulatedChanges:
    """The change feed as one process has it: what ``LeaseChanges`` has."""

    def __init__(self, link: Any) -> None:
        self._link = link

    async def now(self) -> str | None:
        return await self._asked(self._link.changes(0), of=lambda x: str(x[1]))

    async def since(self, token: str) -> tuple[Sequence[Document], str] | None:
        return await self._asked(self._link.changes(int(token)), of=lambda x: (x[0], str(x[1])))

    async def _asked(self, question: Awaitable[Any], of: Callable[[Any], T]) -> T | None:
        """Without an answer, all leases are listed."""
        try:
            return of(await question)
        except StoreUnavailable:
            return None


class CosmosStores:
    """One container, and the processes that use it: half of them by what has changed."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._endpoint = Endpoint()
        self._replicas = Replicas()
        # Without a draw: seeds keep their stories.
        self._shows_changes = Random(around.random.getstate()[1][0]).random() < 0.5
        items = SimulatedItems(self._endpoint, around, "witness")
        self._leases = CosmosLeases(cast("Items", items), _NAMES)

    @property
    def records(self) -> Records:
        return self._leases

    def connect(self, process_id: str) -> LeaseContainer:
        changes: Any = None
        if self._shows_changes:
            server = Server(ChangesServer(self._endpoint, self._around), self._replicas)
            changes = SimulatedChanges(self._around.link(server, process_id))
        return CosmosLeases(self.items(process_id), _NAMES, changes=changes)

    def items(self, process_id: str) -> Items:
        """Return the documents as one process has them, of whatever kind it is."""
        items = SimulatedItems(self._endpoint, self._around, process_id)
        server = Server(items, self._replicas)
        members = listing("query", begin=_NAMES.records("host"))
        link = self._around.link(server, process_id, listings=("query",), members=members)
        return cast("Items", link)

    def close(self) -> None:
        """Have nothing to close."""


def _lease_in(document: Document) -> Lease | None:
    if not document["id"].startswith(_NAMES.leases) or not documents.started(document):
        return None
    return documents.lease_in(document)


def _number_of(document: Document) -> int:
    return int(document["_etag"].strip('"'))


def _copied(documents: T) -> T:
    """Return what a client gets, or what is stored of what it sends: all of it is JSON."""
    return cast("T", msgspec.json.decode(msgspec.json.encode(documents)))

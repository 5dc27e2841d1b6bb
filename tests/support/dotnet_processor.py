"""A host of the .NET change feed processor v3, as far as its lease documents go.

Written from what is known of its sources, and on purpose without any code of ours: it
reads whole documents and replaces them under their etag, as .NET does.
"""

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy
from azure.cosmos.exceptions import CosmosResourceExistsError

Document = dict[str, Any]

_KNOWN = (
    "id",
    "partitionKey",
    "version",
    "LeaseToken",
    "PartitionId",
    "FeedRange",
    "Owner",
    "ContinuationToken",
    "properties",
    "Mode",
)
"""What its type holds: it drops what it does not know."""


def new_lease(prefix: str, token: str, low: str, high: str) -> Document:
    """Return the lease of a range as it is created: without a position."""
    return {
        "id": f"{prefix}..{token}",
        "version": int(token == f"{low}-{high}"),
        "LeaseToken": token,
        "FeedRange": {"Range": {"min": low, "max": high}},
        "Owner": None,
        "ContinuationToken": None,
        "properties": {},
        "timestamp": None,
        "Mode": "Incremental Feed",
    }


def rewritten(lease: Document, now: datetime, **changed: Any) -> Document:
    """Return what replaces the document of ``lease`` when something of it changes."""
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.%f0Z")
    return {x: lease[x] for x in _KNOWN if x in lease} | {"timestamp": stamp} | changed


class DotNetHost:
    """One host. ``now`` is its clock; each write moves it on by a second."""

    def __init__(self, container: ContainerProxy, prefix: str, name: str) -> None:
        self._container = container
        self.prefix = prefix
        self.name = name
        self.now = datetime(2026, 8, 1, 10, tzinfo=UTC)

    async def initialize(self, ranges: list[Document]) -> bool:
        """Create a lease for each range as its bootstrapper does; false if others do."""
        if await self._exists(f"{self.prefix}.info"):
            return True
        lock: Document = {"id": f"{self.prefix}.lock", "ttl": 30}
        try:
            await self._container.create_item(lock)
        except CosmosResourceExistsError:
            return False
        for found in ranges:
            await self.create(found)
        await self._container.create_item({"id": f"{self.prefix}.info"})
        await self._container.delete_item(lock["id"], lock["id"])
        return True

    async def create(self, found: Document, **more: Any) -> None:
        """Create the lease of a partition key range, without a position."""
        document = new_lease(
            self.prefix, found["id"], found["minInclusive"], found["maxExclusive"]
        )
        await self._container.create_item(document | more)

    async def leases(self) -> list[Document]:
        found = self._container.query_items(
            "SELECT * FROM c WHERE STARTSWITH(c.id, @p)",
            parameters=[{"name": "@p", "value": f"{self.prefix}.."}],
        )
        return [dict(x) async for x in found]

    async def read(self, token: str) -> Document:
        name = f"{self.prefix}..{token}"
        return dict(await self._container.read_item(name, name))

    async def acquire(self, lease: Document) -> Document:
        return await self._write(lease, Owner=self.name)

    async def renew(self, lease: Document) -> Document:
        fresh = await self.read(lease["LeaseToken"])
        assert fresh["Owner"] == self.name, "LeaseLostException"
        return await self._write(fresh)

    async def checkpoint(self, lease: Document, token: str) -> Document:
        fresh = await self.read(lease["LeaseToken"])
        assert fresh["Owner"] == self.name, "LeaseLostException"
        return await self._write(fresh, ContinuationToken=token)

    async def release(self, lease: Document) -> Document:
        return await self._write(await self.read(lease["LeaseToken"]), Owner=None)

    async def split(self, lease: Document, children: list[Document]) -> None:
        """Create the children with the parent's token and properties; delete the parent."""
        for child in children:
            await self.create(
                child,
                ContinuationToken=lease["ContinuationToken"],
                properties=copy.deepcopy(lease["properties"]),
            )
        await self._container.delete_item(lease["id"], lease["id"])

    async def _write(self, lease: Document, **changed: Any) -> Document:
        self.now += timedelta(seconds=1)
        document = rewritten(lease, self.now, **changed)
        return dict(
            await self._container.replace_item(
                document["id"],
                document,
                etag=lease["_etag"],
                match_condition=MatchConditions.IfNotModified,
            )
        )

    async def _exists(self, name: str) -> bool:
        return bool(
            [
                x
                async for x in self._container.query_items(
                    "SELECT c.id FROM c WHERE c.id = @id",
                    parameters=[{"name": "@id", "value": name}],
                )
            ]
        )

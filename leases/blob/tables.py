"""Records as blobs: one for each, written if its etag is unchanged.

The name of a blob is ``PREFIX/FOLDER/ID``. An id that is no plain file name is
percent-encoded, and a long one is a hash; its record says which it is.

The HTTP client sends a request again by itself when a connection ends before the answer is
there, and the server refuses the second one if it has done the first. So each write carries
a token, and a write that was refused is looked up by it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic
from urllib.parse import quote
from uuid import uuid4

from azure.core import MatchConditions
from azure.core.exceptions import (
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import BlobProperties
from azure.storage.blob.aio import BlobClient, ContainerClient

from changefeed.leases.blob.address import BlobAddress
from changefeed.leases.blob.errors import translate_errors
from changefeed.leases.blob.metadata import Found, Kind
from changefeed.leases.conditional import short_key
from changefeed.leases.lease import Version
from changefeed.leases.tables import Record
from changefeed.runtime.for_each import for_each

_AT_ONCE = 16
_LONGEST_NAME = 200
_UNKNOWN = "unknown"  # an etag that no server gives
_TOKEN = "changefeedwrite"  # noqa: S105 - it names a write


class BlobTable(Generic[Record]):
    """The records of one kind under one prefix: a ``ConditionalTable``; versions are etags."""

    def __init__(
        self, client: ContainerClient, address: BlobAddress, kind: Kind[Record]
    ) -> None:
        self._client = client
        self._kind: Kind[Record] = kind
        self.folder = f"{address.prefix}/{kind.folder}/"
        """What the names of its blobs begin with."""
        self._where = str(address)

    async def all(self) -> Sequence[Record]:
        return await self.read(await self.blobs(self.folder))

    async def blobs(self, beginning: str) -> Sequence[BlobProperties]:
        """Return the blobs whose names begin like that, as one listing shows them."""
        with translate_errors(self._where):
            listing = self._client.list_blobs(name_starts_with=beginning, include=["metadata"])
            return [x async for x in listing]

    async def read(self, blobs: Sequence[BlobProperties]) -> Sequence[Record]:
        """Return the records of this table among blobs that were listed."""
        ours = [x for x in blobs if x.name.startswith(self.folder)]
        found = await for_each(ours, self._read, at_once=_AT_ONCE)
        return [x for x in found if x is not None]

    async def get(self, key: str) -> Record | None:
        with translate_errors(self._where):
            try:
                blob = await self._blob(key).get_blob_properties()
            except ResourceNotFoundError:
                await self._require_container()
                return None
        return await self._read(blob)

    async def insert(self, key: str, record: Record) -> Record | None:
        return await self._put(key, record, match_condition=MatchConditions.IfMissing)

    async def update(self, key: str, record: Record) -> Record | None:
        return await self._put(key, record, **_if_match(record.version))

    async def delete(self, key: str, version: Version) -> bool:
        with translate_errors(self._where):
            try:
                await self._blob(key).delete_blob(**_if_match(version))
            except ResourceNotFoundError:
                await self._require_container()
                return False
            except ResourceModifiedError:
                return False
        return True

    async def _put(self, key: str, record: Record, **condition: Any) -> Record | None:
        wanted, token, blob = self._kind.write(record), uuid4().hex, self._blob(key)
        assert _TOKEN not in wanted.metadata, (
            f"the token would hide what {wanted.metadata} says"
        )
        with translate_errors(self._where):
            try:
                put = await blob.upload_blob(
                    wanted.content,
                    length=len(wanted.content),
                    overwrite=True,
                    metadata={**wanted.metadata, _TOKEN: token},
                    **condition,
                )
                etag: str | None = put["etag"]
            except (ResourceExistsError, ResourceModifiedError):
                etag = await self._etag_of(token, blob)
            except ResourceNotFoundError:
                await self._require_container()
                return None
        return None if etag is None else replace(record, version=_version(etag))

    async def _etag_of(self, token: str, blob: BlobClient) -> str | None:
        """Return the etag of a write that was sent twice; ``None`` if another one is stored."""
        try:
            found = await blob.get_blob_properties()
        except ResourceNotFoundError:
            return None
        return str(found.etag) if (found.metadata or {}).get(_TOKEN) == token else None

    async def _read(self, blob: Any) -> Record | None:
        """Read what was listed; ``None`` if it was deleted since."""
        found = Found(
            name=blob.name,
            metadata=blob.metadata or {},
            written=blob.last_modified.timestamp(),
        )
        if not found.content_needed:
            return replace(self._kind.read(found), version=_version(blob.etag))
        # Content and metadata of one download belong together; those of the listing may be
        # of the write before.
        with translate_errors(self._where):
            try:
                loaded = await self._client.get_blob_client(blob.name).download_blob()
                content = await loaded.readall()
            except ResourceNotFoundError:
                return None
        properties = loaded.properties
        found = replace(found, metadata=properties.metadata or {})
        return replace(self._kind.read(found, content), version=_version(properties.etag))

    async def _require_container(self) -> None:
        """Raise if the container is missing, and not only the blob."""
        await self._client.get_container_properties()

    def _blob(self, key: str) -> BlobClient:
        return self._client.get_blob_client(self.folder + blob_name(key))


class BlobFeedText:
    """A blob of its own, ``PREFIX/feed``, with the text as its content: a ``FeedText``."""

    def __init__(self, client: ContainerClient, address: BlobAddress) -> None:
        self._blob = client.get_blob_client(f"{address.prefix}/feed")
        self._where = str(address)

    async def get(self) -> str | None:
        with translate_errors(self._where):
            try:
                loaded = await self._blob.download_blob()
                return (await loaded.readall()).decode()
            except ResourceNotFoundError:
                return None

    async def put(self, identity: str) -> None:
        with translate_errors(self._where):
            await self._blob.upload_blob(identity.encode(), overwrite=True)


def blob_name(key: str) -> str:
    """Return an id as the last part of a blob's name: itself where it is a plain one."""
    if key in {"", ".", ".."}:
        return f"%{key}"
    plain = quote(key, safe="")
    if plain.endswith("."):
        plain = f"{plain[:-1]}%2E"
    name = plain if len(plain) <= _LONGEST_NAME else short_key(key, 0)
    assert 0 < len(name) <= _LONGEST_NAME, f"{name!r} is no last part of a blob's name"
    assert "/" not in name, f"{name!r} would be in a folder of its own"
    return name


def _if_match(version: Version) -> dict[str, Any]:
    """Return the condition that the version is unchanged; never true of one that is no etag."""
    plain = version.isascii() and version.isalnum() and len(version) <= _LONGEST_NAME
    etag = f'"{version if plain else _UNKNOWN}"'
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def _version(etag: str) -> Version:
    """Return an etag without its quotes, which listings leave out."""
    return Version(etag.strip('"'))

"""Records as blobs: one for each, written if its etag is unchanged.

The name of a blob is ``PREFIX/FOLDER/ID``. An id that is no plain file name is
percent-encoded, and a long one is a hash; its record says which it is.

The HTTP client sends a request again by itself when a connection ends before the answer is
there, and the server refuses the second one if it has done the first. So each write carries
a token, and a write that was refused is looked up by it.
"""

import dataclasses
from collections.abc import Collection
from os.path import commonprefix
from typing import Any
from urllib.parse import quote

from azure.core import MatchConditions
from azure.core.exceptions import (
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.storage.blob import BlobProperties, ContainerProperties
from azure.storage.blob.aio import BlobClient, ContainerClient
from msgspec.structs import replace

from changefeed.runtime.calls import for_each
from changefeed.runtime.unique_names import unique_name
from changefeed.stores.blob.address import BlobAddress
from changefeed.stores.blob.errors import translate_errors
from changefeed.stores.blob.metadata import ListedBlob, record_in, stored
from changefeed.stores.kinds import HOSTS
from changefeed.stores.store import (
    WHOLE,
    Listed,
    Record,
    Store,
    etag_of,
    short_key,
    version_of,
    with_position,
)

_AT_ONCE = 16
_MAX_NAME = 200
_UNKNOWN = "unknown"  # an etag that no server gives
_FOLDERS = {HOSTS: "owner-hosts"}
"""Listed with ``ownership`` in one request. Not under that name: some of the Event Hubs SDKs
read whatever begins so.
"""
_TOKEN = "changefeedwrite"  # noqa: S105 - it names a write


class BlobStore(Store):
    """The records under one prefix; versions are etags, with a mark where there is a position.

    Blob Storage cannot say in time what was written since: each listing has everything.
    """

    def __init__(self, client: ContainerClient, address: BlobAddress) -> None:
        self._client = client
        self._prefix = address.prefix
        self._where = str(address)

    async def list(
        self,
        kinds: Collection[str],
        since: str = WHOLE,  # noqa: ARG002 - of the protocol
        put: Record | None = None,
    ) -> Listed:
        written = None if put is None else await self.put(put)
        folders = {self.folder(x): x for x in kinds}
        assert len(folders) == len(kinds), f"kinds that share a folder: {kinds}"
        with translate_errors(self._where):
            # One listing shows all: each request is paid for.
            listing = self._client.list_blobs(
                name_starts_with=commonprefix([*folders]),  # noqa: RUF071 - no path
                include=["metadata"],
            )
            blobs = [x async for x in listing]

        async def read(blob: BlobProperties) -> Record | None:
            kind = folders.get(blob.name.rpartition("/")[0] + "/")
            return None if kind is None else await self._read(kind, blob)

        found = await for_each(blobs, read, at_once=_AT_ONCE)
        records = [replace(x, position=None) for x in found if x is not None]
        return Listed(records=records, total=None, token=WHOLE, put=written)

    async def get(self, kind: str, key: str) -> Record | None:
        with translate_errors(self._where):
            try:
                blob = await self._blob(kind, key).get_blob_properties()
            except ResourceNotFoundError:
                await self.container()
                return None
        return await self._read(kind, blob)

    async def put(self, record: Record) -> Record | None:
        whole = await with_position(self, record)
        return None if whole is None else await self._put(whole)

    async def _put(self, record: Record) -> Record | None:
        wanted, token = stored(record), unique_name()
        assert _TOKEN not in wanted.metadata, (
            f"the token would hide what {wanted.metadata} says"
        )
        blob = self._blob(record.kind, record.key)
        missing = {"match_condition": MatchConditions.IfMissing}
        with translate_errors(self._where):
            try:
                put = await blob.upload_blob(
                    wanted.content,
                    length=len(wanted.content),
                    overwrite=True,
                    metadata={**wanted.metadata, _TOKEN: token},
                    **(_if_match(record.version) if record.version else missing),
                )
                etag: str | None = put["etag"]
            except (ResourceExistsError, ResourceModifiedError):
                etag = await self._etag_of(token, blob)
            except ResourceNotFoundError:
                await self.container()
                return None
        return None if etag is None else _of_version(record, etag)

    async def delete(self, kind: str, key: str, version: str) -> bool:
        with translate_errors(self._where):
            try:
                await self._blob(kind, key).delete_blob(**_if_match(version))
            except ResourceNotFoundError:
                await self.container()
                return False
            except ResourceModifiedError:
                return False
        return True

    async def _etag_of(self, token: str, blob: BlobClient) -> str | None:
        """Return the etag of a write that was sent twice; ``None`` if another one is stored."""
        try:
            found = await blob.get_blob_properties()
        except ResourceNotFoundError:
            return None
        return str(found.etag) if (found.metadata or {}).get(_TOKEN) == token else None

    async def _read(self, kind: str, blob: Any) -> Record | None:
        """Read what was listed; ``None`` if it was deleted since."""
        found = ListedBlob(
            name=blob.name,
            metadata=blob.metadata or {},
            written=blob.last_modified.timestamp(),
        )
        if not found.content_needed:
            return _of_version(record_in(kind, found), blob.etag)
        # Content and metadata of one download belong together; those of the listing may be
        # of the write before.
        with translate_errors(self._where):
            try:
                loaded = await self._client.get_blob_client(blob.name).download_blob()
                content = await loaded.readall()
            except ResourceNotFoundError:
                return None
        properties = loaded.properties
        found = dataclasses.replace(found, metadata=properties.metadata or {})
        return _of_version(record_in(kind, found, content), properties.etag)

    async def container(self) -> ContainerProperties:
        """Return what the container is. Raise if it is missing, and not only a blob."""
        with translate_errors(self._where):
            return await self._client.get_container_properties()

    def folder(self, kind: str) -> str:
        """Return what the names of all blobs of a kind begin with."""
        assert "/" not in kind, f"{kind!r} would be several folders"
        return f"{self._prefix}/{_FOLDERS.get(kind, kind)}/"

    def _blob(self, kind: str, key: str) -> BlobClient:
        return self._client.get_blob_client(self.folder(kind) + blob_name(key))


def blob_name(key: str) -> str:
    """Return an id as the last part of a blob's name: itself where it is a plain one."""
    if key in {"", ".", ".."}:
        return f"%{key}"
    plain = quote(key, safe="")
    if plain.endswith("."):
        plain = f"{plain[:-1]}%2E"
    name = plain if len(plain) <= _MAX_NAME else short_key(key, 0)
    assert 0 < len(name) <= _MAX_NAME, f"{name!r} is no last part of a blob's name"
    assert "/" not in name, f"{name!r} would be in a folder of its own"
    return name


def _if_match(version: str) -> dict[str, Any]:
    """Return the condition that the version is unchanged; never true of one that is no etag."""
    version = etag_of(version)
    plain = version.isascii() and version.isalnum() and len(version) <= _MAX_NAME
    etag = f'"{version if plain else _UNKNOWN}"'
    return {"etag": etag, "match_condition": MatchConditions.IfNotModified}


def _of_version(record: Record, etag: str) -> Record:
    """Give a record its version: the etag without quotes, which listings leave out."""
    bare = etag.strip('"')
    assert '"' not in bare, f"{etag} is no etag"
    return replace(record, version=version_of(bare, record.position))

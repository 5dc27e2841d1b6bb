"""Object stores of clouds, through ``obstore``: S3 and what speaks it, Azure Blob, GCS.

All of them know a put that fails where there is an object already, and one that fails unless
the object is of a version (If-Match). Credentials, endpoints
and regions come from the environment variables that each vendor's own tools read
(``AWS_ENDPOINT_URL``, ``AZURE_STORAGE_ACCOUNT_NAME``, ``GOOGLE_APPLICATION_CREDENTIALS`` ...).
"""

import os
from collections.abc import Awaitable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    NotModifiedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import AzureStore, GCSStore, ObjectStore, S3Store

from changefeed.log.stores.store import MISSING, Listed, Versioned
from changefeed.runtime.errors import StoreRefused, StoreUnavailable, answered

T = TypeVar("T")
_RETRIES: Final[Any] = {"max_retries": 2, "retry_timeout": timedelta(seconds=15)}
_METADATA: Final = ("169.254.169.254", "metadata.google.internal", "MissingAccount")
"""Where clients look for credentials that the environment does not have."""
_CREDENTIALS: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role",
    "az": (
        "AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, "
        "or give this machine a managed identity"
    ),
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or give this machine a service account",
}
_ENDPOINT: Final = {
    "s3": "AWS_ENDPOINT_URL and AWS_REGION",
    "az": "AZURE_STORAGE_ENDPOINT and AZURE_STORAGE_ACCOUNT_NAME",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
}
_CLIENT: Final[Any] = {
    "timeout": timedelta(seconds=20),
    "connect_timeout": timedelta(seconds=5),
}


def open_remote(scheme: str, bucket: str, prefix: str) -> "RemoteStore":
    """Open a bucket or container; nothing is asked of it yet."""
    options: dict[str, Any] = {
        "prefix": prefix or None,
        "retry_config": _RETRIES,
        "client_options": {**_CLIENT, "allow_http": _is_plain(os.environ)},
    }
    where = f"{scheme}://{bucket}/{prefix}"
    try:
        if scheme == "s3":
            return RemoteStore(S3Store(bucket, **options), where)
        if scheme == "gs":
            return RemoteStore(GCSStore(bucket, **options), where)
        return RemoteStore(AzureStore(bucket, **options), where)
    except (BaseError, ValueError) as error:
        raise StoreRefused(
            f"the store {where} cannot be opened: {_short(error)}. Set {_CREDENTIALS[scheme]}"
        ) from error


def _is_plain(environ: Mapping[str, str]) -> bool:
    """Whether the endpoint in the environment is one of plain HTTP: an emulator, or a store of
    one's own. Options that are given here replace those that the environment has.
    """
    return any(
        environ.get(name, "").startswith("http://")
        for name in (
            "AWS_ENDPOINT_URL",
            "AWS_ENDPOINT",
            "AWS_ENDPOINT_URL_S3",
            "AZURE_STORAGE_ENDPOINT",
            "AZURE_ENDPOINT",
        )
    )


class RemoteStore:
    """See ``ObjectStore``. ``where`` names it in messages."""

    def __init__(self, store: ObjectStore, where: str) -> None:
        self._store = store
        self._where = where

    async def create(self, key: str, data: bytes) -> bool:
        try:
            await self._put(key, data, "create")
        except (AlreadyExistsError, PreconditionError) as error:
            if await self.written_at(key) is not None:
                return False
            raise self._translated(error) from error  # S3's 409 means "conflict: try again"
        return True

    async def put(self, key: str, data: bytes) -> None:
        await self._put(key, data, "overwrite")

    async def replace(self, key: str, data: bytes, version: str) -> str | None:
        mode = "create" if version == MISSING else _update(version)
        try:
            return _version(await self._put(key, data, mode))
        except (AlreadyExistsError, PreconditionError):
            return None

    async def newer(self, key: str, version: str) -> Versioned | None:
        options: Any = None if version == MISSING else {"if_none_match": _e_tag(version)}
        try:
            found = await self._call(obstore.get_async(self._store, key, options=options))
            return Versioned(bytes(await self._call(found.bytes_async())), _version(found.meta))
        except NotModifiedError:
            return None
        except FileNotFoundError:
            return None if version == MISSING else Versioned(b"", MISSING)

    async def _put(self, key: str, data: bytes, mode: Any) -> Any:
        try:
            return await self._call(
                obstore.put_async(self._store, key, data, mode=mode, use_multipart=False)
            )
        except FileNotFoundError as error:
            missing = StoreRefused(f"{self._where} is not there: create the bucket")
            raise answered(missing) from error

    async def get(self, key: str, start: int = 0, end: int | None = None) -> bytes | None:
        assert end is None or 0 <= start <= end, f"{key}: bytes {start} to {end}"
        options: Any = None
        if end is not None:
            options = {"range": (start, end)}
        elif start:
            options = {"range": {"offset": start}}
        try:
            found = await self._call(obstore.get_async(self._store, key, options=options))
            return bytes(await self._call(found.bytes_async()))
        except FileNotFoundError:
            return None

    async def written_at(self, key: str) -> float | None:
        try:
            found = await self._call(obstore.head_async(self._store, key))
        except FileNotFoundError:
            return None
        return found["last_modified"].timestamp()

    async def list(self, prefix: str, after: str = "") -> Sequence[Listed]:
        stream = obstore.list(self._store, prefix or None, offset=after or None)
        found = []
        try:
            async for chunk in stream:
                found += [Listed(x["path"], x["size"]) for x in chunk]
        except BaseError as error:
            raise self._translated(error) from error
        return sorted(x for x in found if x.key > after)

    async def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            try:
                await self._call(obstore.delete_async(self._store, key))
            except FileNotFoundError:
                continue

    async def _call(self, call: Awaitable[T]) -> T:
        try:
            return await call
        except (AlreadyExistsError, PreconditionError, NotModifiedError, FileNotFoundError):
            raise
        except BaseError as error:
            raise self._translated(error) from error
        except NotImplementedError as error:
            raise StoreRefused(
                f"the store {self._where} cannot do what brokers need: {_short(error)} Use one "
                f"that knows conditional requests (If-Match and If-None-Match)"
            ) from error

    def _translated(self, error: BaseError) -> StoreRefused | StoreUnavailable:
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            return answered(
                StoreRefused(
                    f"the store {self._where} refuses: {_short(error)}. Brokers need the right "
                    f"to list, read, create, overwrite and delete there"
                )
            )
        return StoreUnavailable(
            f"the store {self._where} cannot be reached: {_short(error)}. {self._advice(error)}"
        )

    def _advice(self, error: BaseError) -> str:
        scheme = self._where.partition(":")[0]
        if any(x in str(error) for x in _METADATA):
            return (
                f"The environment has no credentials, so the cloud was asked for those of this "
                f"machine: set {_CREDENTIALS[scheme]}"
            )
        return f"Look at the network between, and at {_ENDPOINT[scheme]}, which say where it is"


def _version(meta: Any) -> str:
    """Return an object's version: GCS asks for a generation where others ask for an ETag."""
    return f"{meta['e_tag']} {meta['version'] or ''}"


def _e_tag(version: str) -> str:
    return version.rpartition(" ")[0]


def _update(version: str) -> Mapping[str, str]:
    e_tag, _, generation = version.rpartition(" ")
    return {"e_tag": e_tag, **({"version": generation} if generation else {})}


def _short(error: Exception) -> str:
    return str(error).partition("\n")[0][:300]

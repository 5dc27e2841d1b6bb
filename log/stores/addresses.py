"""Where a cluster lies, as commands and settings name it."""

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from changefeed.log.stores.local_store import LocalStore
from changefeed.log.stores.memory_store import MemoryStore
from changefeed.log.stores.store import ObjectStore
from changefeed.runtime.errors import StoreRefused

_REMOTE: Final = {"s3": "s3", "s3a": "s3", "az": "az", "azure": "az", "gs": "gs"}
_FORMS: Final = (
    "s3://BUCKET/PREFIX, az://CONTAINER/PREFIX, gs://BUCKET/PREFIX, file:///DIRECTORY, or "
    "memory: for trying things out in one process"
)
_memory: dict[str, MemoryStore] = {}


def open_store(address: str) -> ObjectStore:
    """Open the object store at an address; refuse, with the forms there are, what is none.

    The same ``memory:NAME`` is the same store in one process.
    """
    parts = urlsplit(address)
    if parts.scheme == "memory":
        return _memory.setdefault(address, MemoryStore())
    if parts.scheme == "file":
        return LocalStore(_directory(address))
    if parts.scheme not in _REMOTE or not parts.netloc:
        raise StoreRefused(f"{address!r} is not a place for a cluster: give {_FORMS}")
    try:
        from changefeed.log.stores.remote_store import open_remote  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise StoreRefused(
            f"{address} needs the client of object stores: pip install "
            f"'changefeed-host[brokers]'"
        ) from error
    return open_remote(_REMOTE[parts.scheme], parts.netloc, parts.path.strip("/"))


def _directory(address: str) -> Path:
    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise StoreRefused(f"{address!r} names no directory: give file:///DIRECTORY")
    return Path(unquote(parts.path))

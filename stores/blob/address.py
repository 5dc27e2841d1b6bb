"""Addresses of leases in Azure Blob Storage.

``blob://ACCOUNT/CONTAINER/PREFIX``; ``ACCOUNT`` is the name of a storage account, or the
whole host of one (a sovereign cloud, a private endpoint). ``blob+http://HOST:PORT/ACCOUNT/
CONTAINER/PREFIX`` is an emulator. ``blob:///CONTAINER/PREFIX`` takes the account from the
connection string. ``PREFIX`` is ``NAMESPACE/EVENTHUB/GROUP`` where an Event Hubs processor
is to read along, and any path otherwise.
"""

from dataclasses import dataclass

from changefeed.runtime.errors import StoreRefused

DEFAULT_PREFIX = "changefeed"
_SUFFIX = "blob.core.windows.net"
_FORMS = {
    "blob": "blob://ACCOUNT/CONTAINER/PREFIX",
    "blob+http": "blob+http://HOST:PORT/ACCOUNT/CONTAINER/PREFIX",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobAddress:
    """Where leases are; ``endpoint`` is empty where the connection string says it."""

    endpoint: str
    container: str
    prefix: str

    def __str__(self) -> str:
        return f"{self.endpoint or 'blob:/'}/{self.container}/{self.prefix}"


def read_address(scheme: str, place: str) -> BlobAddress:
    """Read what follows ``blob:`` or ``blob+http:``. Raise ``StoreRefused``."""
    if "@" in place:  # not shown: a secret may stand before it
        raise StoreRefused(
            "an address of leases in Azure Blob Storage must not hold a key or password: set "
            f"CHANGEFEED_BACKENDS__BLOB__KEY instead. {_FORMS[scheme]}"
        )
    if not place.startswith("//") or "?" in place:
        raise _no_address(scheme, place)
    host, *path = place[2:].strip("/").split("/") if place[2:3] != "/" else ["", *_path(place)]
    if scheme == "blob+http":
        account, *path = path or [""]
        endpoint = f"http://{host}/{account}"
        if not host or not account:
            raise _no_address(scheme, place)
    elif host:
        endpoint = f"https://{host if '.' in host else f'{host}.{_SUFFIX}'}"
    else:
        endpoint = ""
    container, *rest = path or [""]
    if not container or "" in rest:
        raise _no_address(scheme, place)
    # The Event Hubs SDKs write all their names in lower case.
    prefix = "/".join(rest).lower() or DEFAULT_PREFIX
    assert not prefix.startswith("/"), f"{prefix} would begin with a folder without a name"
    return BlobAddress(endpoint=endpoint, container=container, prefix=prefix)


def _path(place: str) -> list[str]:
    return place.strip("/").split("/")


def _no_address(scheme: str, place: str) -> StoreRefused:
    return StoreRefused(
        f"{scheme}:{place} is not an address of leases in Azure Blob Storage: {_FORMS[scheme]}"
    )

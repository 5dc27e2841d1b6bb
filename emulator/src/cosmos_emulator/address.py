"""What a URL and a verb ask for: which resource, and which operation on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from cosmos_emulator.errors import CosmosError, not_supported
from cosmos_emulator.scripts import ScriptKind

_SCRIPTS: Final = {x.path: x.noun for x in ScriptKind}
_PATHS: Final = {
    "": [],
    "dbs": ["dbs"],
    "colls": ["dbs", "colls"],
    "docs": ["dbs", "colls", "docs"],
    "pkranges": ["dbs", "colls", "pkranges"],
    "conflicts": ["dbs", "colls", "conflicts"],
    "users": ["dbs", "users"],
    "permissions": ["dbs", "users", "permissions"],
    "offers": ["offers"],
    **{x: ["dbs", "colls", x] for x in _SCRIPTS},
}
"""Below which kinds each kind of resource is."""
_ELSEWHERE: Final = {
    "clientencryptionkeys": "Client-side encryption",
}
_DELETES_KEY: Final = ["operations", "partitionkeydelete"]
_OPERATIONS: Final = {
    ("", "GET", False): "read_account",
    ("dbs", "GET", True): "list_databases",
    ("dbs", "POST", True): "create_database",
    ("dbs", "GET", False): "read_database",
    ("dbs", "DELETE", False): "delete_database",
    ("colls", "GET", True): "list_containers",
    ("colls", "POST", True): "create_container",
    ("colls", "GET", False): "read_container",
    ("colls", "PUT", False): "replace_container",
    ("colls", "DELETE", False): "delete_container",
    ("pkranges", "GET", True): "read_ranges",
    ("conflicts", "GET", True): "list_conflicts",
    ("conflicts", "POST", True): "query_conflicts",
    ("conflicts", "GET", False): "read_conflict",
    ("conflicts", "DELETE", False): "delete_conflict",
    ("offers", "GET", True): "list_offers",
    ("offers", "POST", True): "query_offers",
    ("offers", "GET", False): "read_offer",
    ("offers", "PUT", False): "replace_offer",
    ("users", "GET", True): "list_users",
    ("users", "POST", True): "create_user",
    ("users", "GET", False): "read_user",
    ("users", "PUT", False): "replace_user",
    ("users", "DELETE", False): "delete_user",
    ("permissions", "GET", True): "list_permissions",
    ("permissions", "POST", True): "create_permission",
    ("permissions", "GET", False): "read_permission",
    ("permissions", "PUT", False): "replace_permission",
    ("permissions", "DELETE", False): "delete_permission",
    ("partitionkey", "POST", True): "delete_items_of_key",
    ("docs", "GET", True): "read_items",
    ("docs", "POST", True): "create_item",
    ("docs", "GET", False): "read_item",
    ("docs", "PUT", False): "replace_item",
    ("docs", "PATCH", False): "patch_item",
    ("docs", "DELETE", False): "delete_item",
    ("sprocs", "POST", False): "execute_stored_procedure",
    **{
        (path, verb, is_feed): f"{what}_{noun}{'s' if what == 'list' else ''}"
        for path, noun in _SCRIPTS.items()
        for verb, is_feed, what in (
            ("GET", True, "list"),
            ("POST", True, "create"),
            ("GET", False, "read"),
            ("PUT", False, "replace"),
            ("DELETE", False, "delete"),
        )
    },
}
_QUERIES: Final = {
    "dbs": "query_databases",
    "colls": "query_containers",
    "docs": "query_items",
    "users": "query_users",
    "permissions": "query_permissions",
    **{path: f"query_{noun}s" for path, noun in _SCRIPTS.items()},
}
OPERATIONS: Final = frozenset(
    {*_OPERATIONS.values(), *_QUERIES.values()}
    | {"upsert_item", "batch", "query_plan", "change_feed"}
)
"""Every name that a fault can be given, and that requests are counted under."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A path, taken apart. A feed is the list of all resources of a kind in another."""

    kind: str  # "" is the account
    is_feed: bool
    ids: tuple[str, ...]  # of the database, the container, what is in it, as far as it goes
    link: str

    @property
    def signed_links(self) -> tuple[str, str]:
        """What a client may have signed: the link by names, or the last resource id."""
        return self.link, self.link.rsplit("/", 1)[-1].lower()

    @property
    def signed_kinds(self) -> tuple[str, ...]:
        """What a client may have signed as the type: deletes by key have two names."""
        return (self.kind, "colls") if self.kind == "partitionkey" else (self.kind,)

    @property
    def has_container(self) -> bool:
        """Whether it is a container, or lies in one."""
        return len(self.ids) > 1 and self.kind not in {"users", "permissions"}

    @property
    def database(self) -> str:
        return self.ids[0]

    @property
    def container(self) -> str:
        return self.ids[1]

    @property
    def item(self) -> str:
        return self.ids[2]


def address_of(raw_path: str) -> Address:
    """Take a path apart as it came over the wire: ids may contain anything, quoted."""
    parts = [unquote(x) for x in raw_path.strip("/").split("/") if x]
    kinds, ids = parts[0::2], tuple(parts[1::2])
    kind = kinds[-1] if kinds else ""
    if parts[4:] == _DELETES_KEY and kinds[:2] == ["dbs", "colls"]:
        link = "/".join(parts[:4])
        return Address(kind="partitionkey", is_feed=True, ids=ids[:2], link=link)
    if kind in _ELSEWHERE:
        raise not_supported(_ELSEWHERE[kind], "its REFERENCE.md lists what it does.")
    if kinds != _PATHS.get(kind):
        raise CosmosError(404, f"There is no resource at /{'/'.join(parts)}.")
    is_feed = len(parts) % 2 == 1
    link = "/".join(parts[:-1] if is_feed else parts)
    return Address(kind=kind, is_feed=is_feed, ids=ids, link=link)


def operation_of(address: Address, verb: str, headers: Mapping[str, str]) -> str:
    """Name what is asked for; 405 if the resource cannot do it."""
    operation = _OPERATIONS.get((address.kind, verb, address.is_feed))
    if operation is None:
        raise CosmosError(405, f"{verb} is not an operation on /{address.link}.")
    if _is_true(headers, "x-ms-cosmos-is-query-plan-request") and address.kind == "docs":
        return "query_plan"
    is_query = any(_is_true(headers, f"x-ms-documentdb-{x}") for x in ("isquery", "query"))
    if operation.startswith("create_") and is_query:
        return _QUERIES[address.kind]
    if operation == "read_items" and "A-IM" in headers:
        return "change_feed"
    if operation == "create_item":
        return _posted(headers)
    return operation


def _posted(headers: Mapping[str, str]) -> str:
    if headers.get("Content-Type", "").startswith("application/query+json"):
        return "query_items"
    if _is_true(headers, "x-ms-cosmos-is-batch-request"):
        return "batch"
    return "upsert_item" if _is_true(headers, "x-ms-documentdb-is-upsert") else "create_item"


def _is_true(headers: Mapping[str, str], name: str) -> bool:
    return headers.get(name, "").lower() == "true"

"""One request and its answer, apart from HTTP; and what every request works on."""

from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from cosmos_emulator import charges
from cosmos_emulator.address import Address
from cosmos_emulator.auth import key_bytes
from cosmos_emulator.conditions import Conditions
from cosmos_emulator.consistency import Consistency
from cosmos_emulator.containers import Container, Containers
from cosmos_emulator.errors import (
    COLLECTION_RID_MISMATCH,
    PARTITION_KEY_MISMATCH,
    READ_SESSION_NOT_AVAILABLE,
    CosmosError,
    bad_request,
)
from cosmos_emulator.hashing import HIGHEST, LOWEST
from cosmos_emulator.items import Item, Items
from cosmos_emulator.offers import Offers
from cosmos_emulator.partition_keys import PartitionKey
from cosmos_emulator.permissions import Principals
from cosmos_emulator.query.run import Scope
from cosmos_emulator.ranges import PhysicalRange, Ranges
from cosmos_emulator.sandbox import Sandboxes
from cosmos_emulator.scripts import Scripts
from cosmos_emulator.settings import EmulatorSettings
from cosmos_emulator.store import Store
from cosmos_emulator.work import Work

if TYPE_CHECKING:
    from cosmos_emulator.regions import Regions

_DEFAULT_PAGE = 100
_LARGEST_PAGE = 10_000
_DIGITS = frozenset("0123456789ABCDEF")
_MAX_COUNT = 18  # digits


class Emulator:
    """Everything that requests work on: the store, and what knows its tables."""

    def __init__(self, settings: EmulatorSettings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.clock = clock
        self.key = key_bytes(settings.key)
        self.store = Store(settings.data)
        self.ranges = Ranges(self.store)
        self.offers = Offers(self.store, clock)
        self.containers = Containers(self.store, self.ranges, self.offers, clock)
        self.items = Items(self.store, self.ranges, clock)
        self.principals = Principals(self.store, clock)
        self.scripts = Scripts(self.store, clock)
        self.sandboxes = Sandboxes()
        self.work = Work(settings.query_seconds)

    def over(self, store: Store) -> "Emulator":
        """Return the account with its items as another store has them, to be read there."""
        other = copy(self)
        other.store = store
        other.ranges = self.ranges.over(store)
        other.items = Items(store, other.ranges, self.clock)
        return other

    def split_if_overgrown(self, pid: int) -> None:
        """Cut a range that has grown beyond the limits of the settings."""
        most, largest = self.settings.split_at_items, self.settings.split_at_bytes
        if most is None and largest is None:
            return
        row = self.store.row("SELECT items, bytes FROM ranges WHERE pid = ?", (pid,))
        assert row is not None
        if (most is not None and row[0] > most) or (largest is not None and row[1] > largest):
            cut = self.ranges.median(pid)
            if cut is not None:  # else one key fills the range, and it cannot be cut
                self.ranges.split_now(pid, cut)

    def reset(self) -> None:
        """Go back to the snapshot of the store; 409 while a range is being cut or joined."""
        self.ranges.check_settled()
        self.store.restore()
        self.containers.forget()

    def replace(self, copy: bytes) -> None:
        """Put an exported account in the place of what is there; 400 if it is none."""
        self.ranges.check_settled()
        try:
            self.store.replace(copy)
        except ValueError as error:
            raise bad_request(str(error)) from error
        self.containers.forget()

    def close(self) -> None:
        self.store.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that was let in. Header names are in any case."""

    address: Address
    operation: str
    headers: Mapping[str, str]
    body: bytes
    url: str  # of the emulator itself, as the client sees it
    container: Container | None
    consistency: Consistency
    regions: "Regions"

    @property
    def within(self) -> Container:
        assert self.container is not None
        return self.container

    @property
    def wants_body(self) -> bool:
        return self.headers.get("Prefer", "").lower() != "return=minimal"

    @property
    def conditions(self) -> Conditions:
        return Conditions(
            if_match=self.headers.get("If-Match"),
            if_none_match=self.headers.get("If-None-Match"),
        )

    def page_size(self) -> int:
        """Return how many entries the client wants; -1 leaves it to the server."""
        text = self.headers.get("x-ms-max-item-count", "")
        try:
            wanted = int(text[:_MAX_COUNT]) if text else _DEFAULT_PAGE
        except ValueError:
            raise bad_request(f"x-ms-max-item-count must be a number, not {text!r}.") from None
        if wanted < -1:
            raise bad_request("x-ms-max-item-count must be -1, zero (the usual), or above.")
        return _LARGEST_PAGE if wanted == -1 else wanted or _DEFAULT_PAGE

    def key(self) -> PartitionKey:
        """Return the partition key of a request about one item."""
        return self.whole_key(self.some_key())

    def whole_key(self, key: PartitionKey) -> PartitionKey:
        """Return a key; 400/1001 if it is only the prefix of a hierarchical one."""
        if key.components < len(self.within.paths):
            raise bad_request(
                f"Partition key provided either doesn't correspond to definition in the "
                f"collection or doesn't match partition key field values specified in the "
                f"document. {key.text} has {key.components} values, and the paths are "
                f"{', '.join(self.within.paths)}.",
                PARTITION_KEY_MISMATCH,
            )
        return key

    def some_key(self) -> PartitionKey:
        """Return the partition key of a request, or the prefix of one."""
        header = self.headers.get("x-ms-documentdb-partitionkey")
        if header is None:
            raise bad_request(
                "The header x-ms-documentdb-partitionkey is missing: a request about an item "
                'needs its partition key, as a JSON array such as ["p1"].'
            )
        return self.within.keys.in_header(header)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A status, a JSON text, and what goes out with it."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    charge: float = charges.OTHER


Handler = Callable[[Emulator, Call], Answer | Awaitable[Answer]]


def check_everywhere(call: Call) -> None:
    """Raise 400 unless the client allows a query over all ranges."""
    if "x-ms-documentdb-query-enablecrosspartition" not in call.headers:
        raise bad_request(
            "Cross partition query is required but disabled. Set "
            "x-ms-documentdb-query-enablecrosspartition to true, give a partition key, or "
            "compare the partition key with a value."
        )


def check_incarnation(call: Call) -> None:
    """Raise 400/1024 if the client means a container that was deleted and recreated."""
    intended = call.headers.get("x-ms-cosmos-intended-collection-rid")
    if intended is not None and call.container and intended != call.container.rid:
        raise bad_request(
            f"The container {call.container.id!r} is not the one the client knows: it was "
            f"deleted and created again. Read it again.",
            COLLECTION_RID_MISMATCH,
        )


def range_headers(call: Call, *held: PhysicalRange) -> dict[str, str]:
    """Return the session token of an answer, and whose it is.

    There is one, of the first range, as a gateway answers: clients other than Python's
    take several, joined, for a broken one.
    """
    path = f"dbs/{quote(call.address.database)}/colls/{quote(call.address.container)}"
    headers = {
        "x-ms-session-token": held[0].session_token,
        "x-ms-alt-content-path": path,
        "x-ms-content-path": call.within.rid,
    }
    if len(held) == 1:
        headers["x-ms-documentdb-partitionkeyrangeid"] = held[0].id
        headers["lsn"] = str(held[0].lsn)
    return headers


def item_headers(call: Call, held: PhysicalRange, item: Item | None) -> dict[str, str]:
    headers = range_headers(call, held)
    if item is not None:
        headers |= {"etag": item.etag, "x-ms-item-lsn": str(item.lsn)}
    return headers


def check_session(call: Call, held: PhysicalRange) -> None:
    """Raise 404/1002 if a session has seen more of a range than it now has."""
    if call.consistency is not Consistency.SESSION:
        return
    for part in call.headers.get("x-ms-session-token", "").split(","):
        name, _, progress = part.partition(":")
        version, _, lsn = progress.partition("#")
        known = lsn.partition("#")[0]
        same = name == held.id and version in {str(held.version), "-1"}
        if same and known.isdecimal() and int(known[:_MAX_COUNT]) > held.lsn:
            raise CosmosError(
                404,
                f"The read session is not available: the client has seen LSN {known} of range "
                f"{held.id!r}, and it is at {held.lsn}. The region is behind, or its data was "
                f"lost or recreated.",
                READ_SESSION_NOT_AVAILABLE,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a read of many items is about: some items, and the ranges that hold them."""

    scope: Scope
    held: tuple[PhysicalRange, ...]


def reach_of(emulator: Emulator, call: Call) -> Reach:
    """Read the headers that narrow a read to a key, a range, or a part of the hash space."""
    number, ranges = call.within.number, emulator.ranges
    if "x-ms-documentdb-partitionkey" in call.headers:
        key = call.some_key()
        if key.components < len(call.within.paths):
            return _reach_between(call, ranges, key.epk, key.epk + HIGHEST)
        scope = Scope(container=number, low=key.epk, high=key.epk + "0", key=key)
        return Reach(scope=scope, held=(ranges.holding(number, key.epk),))
    low, high = _bound(call, "x-ms-start-epk", LOWEST), _bound(call, "x-ms-end-epk", HIGHEST)
    if low >= high:
        raise bad_request(f"There are no hashes from {low!r} to {high!r}.")
    name = call.headers.get("x-ms-documentdb-partitionkeyrangeid")
    if name is not None:
        one = ranges.named(number, name.rsplit(",", 1)[-1])
        low, high = max(low, one.low), min(high, one.high)
        return Reach(scope=Scope(container=number, low=low, high=high), held=(one,))
    return _reach_between(call, ranges, low, high)


def _bound(call: Call, header: str, default: str) -> str:
    text = call.headers.get(header, default).upper()
    if not set(text) <= _DIGITS or text > HIGHEST:
        raise bad_request(f"{header} is a hash of hexadecimal digits up to FF, not {text!r}.")
    return text


def _reach_between(call: Call, ranges: Ranges, low: str, high: str) -> Reach:
    number = call.within.number
    found = [x for x in ranges.current(number) if x.low < high and low < x.high]
    held = tuple(ranges.named(number, x.id) for x in found)
    return Reach(scope=Scope(container=number, low=low, high=high), held=held)

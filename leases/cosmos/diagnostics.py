"""Looking at a lease container in Cosmos DB before hosts run on it, or when they cannot.

It writes one item and deletes it again, to see whether it may; everything else is read.
"""

import time
from collections.abc import AsyncIterator, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from azure.cosmos.aio import CosmosClient

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import CosmosAddress
from changefeed.feeds.cosmos.client import LEASE_OPTIONS, Container, connect
from changefeed.leases.cosmos import documents
from changefeed.leases.cosmos.opening import IN_DOCUMENTS
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic, fine, problem, warning
from changefeed.stores.cosmos.errors import OF_STORES
from changefeed.stores.cosmos.items import Items
from changefeed.stores.cosmos.opening import lease_address, open_container_of
from changefeed.stores.cosmos.store import CosmosStore
from changefeed.stores.rights import check_rights

_CLOCK_WARNING = 5.0
_CLOCK_PROBLEM = 300.0
_IDS = "SELECT c.id FROM c"
_WEAK = {"Eventual", "ConsistentPrefix"}


_ALL_VERSIONS = "mode=all-versions"


async def check(at: Address, options: OpenOptions, *, feed: str) -> AsyncIterator[Diagnostic]:
    """Yield what is found. Raise as stores do where no more can be seen."""
    address = lease_address(at.scheme, at.place)
    async with connect(address, options.cosmos, OF_STORES, **LEASE_OPTIONS) as client:
        yield fine("endpoint", f"{client.client_connection.url_connection} answers")
        for found in await _account(client, address):
            yield found
        async with open_container_of(client, address) as (container, names):
            for found in _container(container):
                yield found
            items = Items(container)
            yield await check_rights(CosmosStore(items, names))
            for found in await _prefixes(items, names.prefix):
                yield found
            for found in await _leases(items, names.prefix, IN_DOCUMENTS[address.mode]):
                yield found
    # Both addresses have a mode; where they differ, .NET would misread the leases.
    differ = (_ALL_VERSIONS in feed) != (_ALL_VERSIONS in at.place)
    if differ and feed.startswith("cosmos"):
        yield problem(
            "mode",
            "the feed is read in another mode than the leases say",
            "give both addresses the same mode=…",
        )


async def _account(client: CosmosClient, address: CosmosAddress) -> list[Diagnostic]:
    connection = client.client_connection
    before = time.time()
    with OF_STORES.errors(str(address)):
        account = await connection.GetDatabaseAccount()
    between = (before + time.time()) / 2
    headers = connection.last_response_headers  # ours: nothing else is asked meanwhile
    return [
        *_writes_in(account),
        *_consistency(account.ConsistencyPolicy or {}),
        *clock_findings(headers, between),
    ]


def _writes_in(account: Any) -> Iterator[Diagnostic]:
    regions = [x["name"] for x in account.WritableLocations]
    if len(regions) > 1:
        yield warning(
            "regions",
            f"the account takes writes in {', '.join(regions)}, and conflicts between them "
            "are resolved afterwards: two hosts could win the same lease",
            "let all hosts write in one region, or keep leases in an account with one",
        )
    else:
        yield fine("regions", f"writes go to {', '.join(regions)} alone")


def _consistency(policy: Mapping[str, Any]) -> Iterator[Diagnostic]:
    level = str(policy.get("defaultConsistencyLevel", "unknown"))
    if level in _WEAK:
        yield warning(
            "consistency",
            f"{level}: hosts may see leases that are out of date, and lose more writes",
            "Session or stronger suits leases; a lease is never owned twice in any case",
        )
    else:
        yield fine("consistency", level)


def clock_findings(headers: Mapping[str, str], here: float) -> Iterator[Diagnostic]:
    text = next((y for x, y in headers.items() if x.lower() == "date"), None)
    if text is None:
        return
    # It comes in whole seconds: on average half of one later than it says.
    difference = here - parsedate_to_datetime(text).timestamp() - 0.5
    shown = f"the clock of this machine is {difference:+.0f} s from the server's"
    advice = "switch on time synchronisation (NTP) on this machine"
    if abs(difference) >= _CLOCK_PROBLEM:
        yield problem("clock", f"{shown}: requests are refused from 900 s on", advice)
    elif abs(difference) >= _CLOCK_WARNING:
        yield warning("clock", f"{shown}: .NET hosts go by such stamps", advice)
    else:
        yield fine("clock", "the clock of this machine agrees with the server's")


def _container(container: Container) -> Iterator[Diagnostic]:
    properties = container.properties
    (path, *_) = properties["partitionKey"]["paths"]
    yield fine("container", f"{container.where} is there, by {path}")
    if properties.get("defaultTtl") is None:
        yield warning(
            "time to live",
            "it is off: after a crash, the lock of a .NET host stays for ever",
            "switch it on without a default (-1): no item expires that does not say so",
        )
    else:
        yield fine("time to live", "it is on, for those items that ask for it")
        if properties["defaultTtl"] != -1:
            yield problem(
                "time to live",
                f"every item expires {properties['defaultTtl']} s after its last write, "
                "leases of idle ranges included",
                "set the default to -1 (on, without a default)",
            )
    policy = properties.get("indexingPolicy") or {}
    if any(x.get("path") == "/*" for x in policy.get("includedPaths", [])):
        yield warning(
            "indexing",
            "every property is indexed, which each renewal pays for",
            'exclude "/*" and include nothing: leases are asked for by id only',
        )
    else:
        yield fine("indexing", "only what is asked for")


async def _prefixes(items: Items, prefix: str) -> list[Diagnostic]:
    names = [str(x["id"]) for x in await items.query(_IDS)]
    others = sorted({x.partition("..")[0] for x in names if ".." in x} - {prefix})
    count = sum(x.startswith(f"{prefix}..") for x in names)
    mine = fine("prefix", f"leases under {prefix!r}: {count}")
    if not others:
        return [mine]
    shown = ", ".join(map(repr, others))
    if count:
        return [mine, fine("others", f"there are leases under {shown}, too")]
    return [
        warning(
            "prefix",
            f"no leases under {prefix!r}, but there are under {shown}",
            "to go on where those stand, give one of them in the address: ?prefix=…",
        )
    ]


async def _leases(items: Items, prefix: str, mode: str) -> list[Diagnostic]:
    found = await items.query(documents.LISTED, begin=f"{prefix}..")
    for document in found:
        documents.check_mode(document, mode)
        documents.check_not_java(document)
    own = sum(items.has_key_of_its_own(str(x["id"])) for x in found)
    form = "/id" if items.partitioned_by_id else "/partitionKey"
    kept = f"; {own} leases have a key that is not their id, and keep it" if own else ""
    shown = [fine("form", f"leases are partitioned by {form}{kept}")] if found else []
    foreign = sorted(
        {str(x["Owner"]) for x in found if x.get("Owner") and documents.is_foreign(x)}
    )
    if not foreign:
        return shown
    return [
        *shown,
        warning(
            "other processors",
            f"leases are owned by {', '.join(foreign)}, which write no records of ours",
            "they are shared with as long as they run; ours take over what they leave",
        ),
    ]

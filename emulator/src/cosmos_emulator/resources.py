"""Answers about the account, databases, containers and their ranges."""

import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from cosmos_emulator import rids
from cosmos_emulator.calls import (
    Answer,
    Call,
    Emulator,
    Handler,
    check_everywhere,
    range_headers,
)
from cosmos_emulator.consistency import MOST_BEHIND, MOST_SECONDS
from cosmos_emulator.containers import new_etag
from cosmos_emulator.errors import CosmosError, bad_request, not_supported
from cosmos_emulator.json_values import JsonObject, decoded_object
from cosmos_emulator.offers import Offer, throughput_in_headers, throughput_in_offer
from cosmos_emulator.query.limits import MAX_COUNTS, MAX_LENGTH
from cosmos_emulator.ranges import PhysicalRange
from cosmos_emulator.regions import Region

_MAX_ETAG: Final = 19  # digits
_KNOWN_EMULATOR: Final = "localhost"
"""By it, and the usual region, clients know an emulator, and keep their address."""
_ACCOUNT: Final = "emulator"
_NO_MEDIA: Final = {
    "x-ms-max-media-storage-usage-mb": "2048",
    "x-ms-media-storage-usage-mb": "0",
}
_KB: Final = 1024
_RANGE_KB: Final = 50 * _KB * _KB
_QUERY_ENGINE: Final = json.dumps(
    {
        "maxSqlQueryInputLength": MAX_LENGTH,
        "maxJoinsPerSqlQuery": MAX_COUNTS["JOIN"],
        "maxLogicalAndPerSqlQuery": MAX_COUNTS["AND"],
        "maxLogicalOrPerSqlQuery": MAX_COUNTS["OR"],
        "maxInExpressionItemsCount": MAX_COUNTS["value of IN"],
        "enableSpatialIndexing": False,
    }
)


def read_account(_: Emulator, call: Call) -> Answer:
    url = call.url.replace("//localhost:", "//127.0.0.1:")  # as Microsoft's emulators have it
    readable = [_location(url, x) for x in call.regions]
    name = _KNOWN_EMULATOR if len(readable) == 1 else _ACCOUNT  # Node's would see no regions
    return _json(
        {
            "_self": "",
            "id": name,
            "_rid": name,
            "media": "//media/",
            "addresses": "//addresses/",
            "_dbs": "//dbs/",
            "writableLocations": [_location(url, call.regions.writer)],
            "readableLocations": readable,
            "enableMultipleWriteLocations": False,
            "enablePerPartitionFailoverBehavior": False,
            "userReplicationPolicy": {"asyncReplication": False, "maxReplicasetSize": 1},
            "userConsistencyPolicy": {
                "defaultConsistencyLevel": call.regions.consistency,
                "maxStalenessPrefix": MOST_BEHIND,
                "maxStalenessIntervalInSeconds": MOST_SECONDS,
            },
            "readPolicy": {"primaryReadCoefficient": 1, "secondaryReadCoefficient": 1},
            "queryEngineConfiguration": _QUERY_ENGINE,
        },
        headers=_NO_MEDIA,
    )


def _location(url: str, region: Region) -> JsonObject:
    """Return where clients reach a region; the only one is where the account is."""
    if region.port:
        host = urlsplit(url).netloc.rpartition(":")[0]
        url = f"{urlsplit(url).scheme}://{host}:{region.port}/"
    return {"name": region.name, "databaseAccountEndpoint": url}


def create_database(emulator: Emulator, call: Call) -> Answer:
    made = emulator.containers.create_database(
        decoded_object(call.body), throughput_in_headers(call.headers)
    )
    return _json(made.resource(), status=201, etag=made.etag)


def list_databases(emulator: Emulator, call: Call) -> Answer:
    found = [x.resource() for x in emulator.containers.databases()]
    return listed(call, "", "Databases", found)


async def query_databases(emulator: Emulator, call: Call) -> Answer:
    found = [x.resource() for x in emulator.containers.databases()]
    return await queried(emulator, call, "", "Databases", found)


def read_database(emulator: Emulator, call: Call) -> Answer:
    found = emulator.containers.database(call.address.database)
    return _json(found.resource(), etag=found.etag)


def delete_database(emulator: Emulator, call: Call) -> Answer:
    name = call.address.database
    call.conditions.check_write(emulator.containers.database(name).etag)
    emulator.containers.delete_database(name)
    return Answer(status=204)


def create_container(emulator: Emulator, call: Call) -> Answer:
    body = decoded_object(call.body)
    database = call.address.database
    made = emulator.containers.create_container(
        database, body, throughput_in_headers(call.headers)
    )
    return _json(made.resource(), status=201, etag=made.etag)


def list_containers(emulator: Emulator, call: Call) -> Answer:
    found = emulator.containers.containers(call.address.database)
    rid = emulator.containers.database(call.address.database).rid
    return listed(call, rid, "DocumentCollections", [x.resource() for x in found])


async def query_containers(emulator: Emulator, call: Call) -> Answer:
    found = emulator.containers.containers(call.address.database)
    rid = emulator.containers.database(call.address.database).rid
    return await queried(
        emulator, call, rid, "DocumentCollections", [x.resource() for x in found]
    )


def read_container(emulator: Emulator, call: Call) -> Answer:
    found = call.within
    current = emulator.ranges.current(found.number)
    headers = range_headers(call, current[0])
    if call.headers.get("x-ms-documentdb-populatequotainfo", "").lower() == "true":
        headers |= _quota(current)
    headers["x-ms-alt-content-path"] = f"dbs/{quote(call.address.database)}"
    headers["x-ms-content-path"] = found.database
    return _json(found.resource(), etag=found.etag, headers=headers)


def _quota(current: Sequence[PhysicalRange]) -> dict[str, str]:
    """Return what a container holds, in KB; an account has a limit only for the total."""
    size, count = sum(x.bytes for x in current) // _KB, sum(x.items for x in current)
    most = len(current) * _RANGE_KB
    return {
        "x-ms-resource-quota": f"documentsCount=-1;documentsSize={most};collectionSize={most};",
        "x-ms-resource-usage": f"documentsCount={count};documentsSize={size};"
        f"collectionSize={size};",
    }


def replace_container(emulator: Emulator, call: Call) -> Answer:
    call.conditions.check_write(call.within.etag)
    changed = emulator.containers.replace_container(call.within, decoded_object(call.body))
    return _json(changed.resource(), etag=changed.etag)


def delete_container(emulator: Emulator, call: Call) -> Answer:
    call.conditions.check_write(call.within.etag)
    emulator.containers.delete_container(call.within)
    return Answer(status=204)


def read_ranges(emulator: Emulator, call: Call) -> Answer:
    """List the ranges; as a feed (A-IM), only those that came since an etag, or 304."""
    number = call.within.number
    topology = emulator.ranges.topology(number)
    headers = {"etag": f'"{topology}"', "x-ms-content-path": call.within.rid}
    seen = 0
    if "A-IM" in call.headers and "If-None-Match" in call.headers:
        text = call.headers["If-None-Match"].strip().strip('"')
        seen = int(text) if text.isdecimal() and len(text) < _MAX_ETAG else 0
        if seen >= topology:
            return Answer(status=304, headers=headers)
    current = emulator.ranges.current(number)
    found = [x for x in current if x.born > seen]
    shown = [_range_resource(call, x, 1 / len(current)) for x in found]
    return _listed(call.within.rid, "PartitionKeyRanges", shown, headers=headers)


def list_conflicts(_: Emulator, call: Call) -> Answer:
    return listed(call, call.within.rid, "Conflicts", [])  # writes of one region have none


async def query_conflicts(emulator: Emulator, call: Call) -> Answer:
    if "x-ms-documentdb-partitionkey" not in call.headers:
        check_everywhere(call)
    return await queried(emulator, call, call.within.rid, "Conflicts", [])


def read_conflict(_: Emulator, call: Call) -> Answer:
    raise CosmosError(404, f"There is no conflict {call.address.item!r}: one region writes.")


def list_offers(emulator: Emulator, call: Call) -> Answer:
    return listed(call, "", "Offers", [x.resource() for x in emulator.offers.all()])


async def query_offers(emulator: Emulator, call: Call) -> Answer:
    return await queried(
        emulator, call, "", "Offers", [x.resource() for x in emulator.offers.all()]
    )


def read_offer(emulator: Emulator, call: Call) -> Answer:
    return _offer(emulator.offers.offer(call.address.database))


def replace_offer(emulator: Emulator, call: Call) -> Answer:
    """Change a throughput; a container that needs more ranges for it is split at once."""
    old = emulator.offers.offer(call.address.database)
    call.conditions.check_write(old.etag)
    body = decoded_object(call.body)
    wanted = throughput_in_offer(body, old.throughput, call.headers)
    changed = emulator.offers.replace(old, wanted, new_etag())
    owner = emulator.containers.of_rid(old.owner)
    if owner is not None:
        emulator.ranges.grow(owner.number, wanted.least_ranges, owner.keys.hashing)
    return _offer(changed)


HANDLERS: Final[dict[str, Handler]] = {"delete_conflict": read_conflict} | {
    x.__name__: x
    for x in (
        read_account,
        create_database,
        list_databases,
        query_databases,
        read_database,
        delete_database,
        create_container,
        list_containers,
        query_containers,
        read_container,
        replace_container,
        delete_container,
        read_ranges,
        list_offers,
        query_offers,
        read_offer,
        replace_offer,
        list_conflicts,
        query_conflicts,
        read_conflict,
    )
}


def _offer(offer: Offer) -> Answer:
    return _json(offer.resource(), etag=offer.etag, headers=offer.headers())


def _range_resource(call: Call, held: PhysicalRange, fraction: float) -> JsonObject:
    rid = rids.range_rid(call.within.rid, held.pid)
    return {
        "id": held.id,
        "_rid": rid,
        "_self": f"{call.within.link}pkranges/{rid}/",
        "_etag": f'"{held.born}"',
        "_ts": call.within.ts,
        "minInclusive": held.low,
        "maxExclusive": held.high,
        "ridPrefix": held.pid,
        "throughputFraction": fraction,
        "status": "online",
        "parents": list(held.parents),
    }


def _json(
    resource: JsonObject,
    *,
    status: int = 200,
    etag: str | None = None,
    headers: dict[str, str] | None = None,
) -> Answer:
    sent = dict(headers or {}) | ({"etag": etag} if etag else {})
    return Answer(status=status, body=msgspec.json.encode(resource), headers=sent)


def _listed(
    rid: str, name: str, found: Sequence[Any], *, headers: dict[str, str] | None = None
) -> Answer:
    sent = {"x-ms-item-count": str(len(found)), **(headers or {})}
    return _json({"_rid": rid, name: list(found), "_count": len(found)}, headers=sent)


def listed(call: Call, rid: str, name: str, found: Sequence[JsonObject]) -> Answer:
    """Answer with a page of resources in the order of their ids; the next one is behind it."""
    after = _name_in(call.headers.get("x-ms-continuation"))
    behind = [x for x in found if x["id"] > after]
    page = behind[: call.page_size()]
    headers = {}
    if len(page) < len(behind):
        headers["x-ms-continuation"] = b64encode(page[-1]["id"].encode()).decode()
    return _listed(rid, name, page, headers=headers)


def _name_in(continuation: str | None) -> str:
    try:
        return b64decode(continuation or "", validate=True).decode()
    except ValueError as error:
        raise bad_request(
            f"x-ms-continuation is {continuation!r}, which no list gave. Begin it anew."
        ) from error


async def queried(
    emulator: Emulator, call: Call, rid: str, name: str, resources: Sequence[JsonObject]
) -> Answer:
    """Answer a query over some resources, in one page."""
    if call.headers.get("x-ms-continuation"):
        raise not_supported("A continuation here", "These lists come in one page.")
    rows = [(i, msgspec.json.encode(x)) for i, x in enumerate(resources, start=1)]
    query = await emulator.work.parsed(decoded_object(call.body), now=emulator.clock())
    page = await emulator.work.page(
        query,
        lambda after, most: rows[after : after + most],
        limit=len(rows) + 1,
        continuation=None,
    )
    return _listed(rid, name, [msgspec.Raw(x) for x in page.results])

"""Answers about items: one by one, in batches, by query, and as a change feed."""

import asyncio
import base64
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

import msgspec

from cosmos_emulator import charges, feed, patching
from cosmos_emulator.calls import (
    Answer,
    Call,
    Emulator,
    Handler,
    check_everywhere,
    check_session,
    item_headers,
    range_headers,
    reach_of,
)
from cosmos_emulator.definitions import check_size
from cosmos_emulator.errors import (
    CROSS_PARTITION_QUERY_NOT_SERVABLE,
    CosmosError,
    bad_request,
)
from cosmos_emulator.items import (
    Item,
    Transaction,
    Written,
    replaced_by,
)
from cosmos_emulator.json_values import JsonObject, decoded, decoded_object
from cosmos_emulator.partition_keys import PartitionKey, steps_of
from cosmos_emulator.query import run as queries
from cosmos_emulator.query.plan import FEATURES, plan
from cosmos_emulator.query.run import Query, ResultPage, Scope
from cosmos_emulator.query.syntax import Binary, Expression, Property, operands
from cosmos_emulator.ranges import PhysicalRange
from cosmos_emulator.scripts import ScriptKind
from cosmos_emulator.user_functions import UserFunctions
from cosmos_emulator.work import asking

_WIRE_FORMAT: Final = "x-ms-cosmos-changefeed-wire-format-version"
_WITH_METADATA: Final = "2021-09-15"
_TIMES: Final = (
    *("totalExecution", "queryCompile", "queryLogicalPlanBuild", "queryPhysicalPlanBuild"),
    *("queryOptimization", "indexLookup", "documentLoad", "VMExecution", "writeOutput"),
    *("systemFunctionExecute", "userFunctionExecute"),
)
_NO_INDEXES: Final = base64.b64encode(
    msgspec.json.encode(
        {
            f"{which}{kind}Indexes": []
            for which in ("Utilized", "Potential")
            for kind in ("Single", "Composite")
        }
    )
).decode()


def create_item(emulator: Emulator, call: Call) -> Answer:
    body = _sent_item(call)
    return _write(
        emulator,
        call,
        lambda tx, key: emulator.items.create(tx, call.within, key, body),
    )


def upsert_item(emulator: Emulator, call: Call) -> Answer:
    body, conditions = _sent_item(call), call.conditions
    return _write(
        emulator,
        call,
        lambda tx, key: emulator.items.upsert(tx, call.within, key, body, conditions),
    )


def replace_item(emulator: Emulator, call: Call) -> Answer:
    change = replaced_by(_sent_item(call))
    return _change(emulator, call, change)


def patch_item(emulator: Emulator, call: Call) -> Answer:
    return _change(emulator, call, patch_change(decoded(call.body), now=emulator.clock()))


def delete_item(emulator: Emulator, call: Call) -> Answer:
    name, conditions = call.address.item, call.conditions
    return _write(
        emulator,
        call,
        lambda tx, key: emulator.items.delete(tx, call.within, key, name, conditions),
    )


async def delete_items_of_key(emulator: Emulator, call: Call) -> Answer:
    """Delete all items of a partition key, each in a transaction of its own."""
    await emulator.items.delete_all(call.within, call.key())
    return Answer()


def read_item(emulator: Emulator, call: Call) -> Answer:
    key = call.key()
    held = emulator.ranges.holding(call.within.number, key.epk)
    check_session(call, held)
    found = emulator.items.read(call.within, key, call.address.item)
    headers = item_headers(call, held, found)
    return Answer(body=found.body, headers=headers, charge=charges.read(len(found.body)))


async def read_items(emulator: Emulator, call: Call) -> Answer:
    """Read all items of a scope, page by page, as they are stored."""
    whole = {"query": "SELECT * FROM c"}
    return await _query(emulator, call, await emulator.work.parsed(whole, now=emulator.clock()))


async def query_items(emulator: Emulator, call: Call) -> Answer:
    query = await _parsed(emulator, call)
    narrow = ("x-ms-documentdb-partitionkey", "x-ms-documentdb-partitionkeyrangeid")
    one = any(x in call.headers for x in (*narrow, "x-ms-start-epk"))
    if not one and not _names_a_key(call, query):
        _check_servable(emulator, call, query)
    return await _query(emulator, call, query)


def _check_servable(emulator: Emulator, call: Call, query: Query) -> None:
    """Raise 400, with a plan, where a query of all ranges is the client's to merge."""
    check_everywhere(call)
    if emulator.settings.lenient or query.select.is_simple:
        return
    raise CosmosError(
        400,
        "The provided cross partition query can not be directly served by the gateway. Clients "
        "ask for a query plan, and merge what the ranges answer. An emulator that is started "
        "with --lenient serves it at once.",
        CROSS_PARTITION_QUERY_NOT_SERVABLE,
        info=msgspec.json.encode(_plan(emulator, call, query)).decode(),
    )


async def query_plan(emulator: Emulator, call: Call) -> Answer:
    """Return the query plan for a client that asks each range and merges the answers."""
    query = await _parsed(emulator, call)
    return Answer(body=msgspec.json.encode(_plan(emulator, call, query)))


async def _parsed(emulator: Emulator, call: Call) -> Query:
    body, policies = decoded_object(call.body), call.within.policies
    return await emulator.work.parsed(body, now=emulator.clock(), policies=policies)


def _plan(emulator: Emulator, call: Call, query: Query) -> dict[str, Any]:
    announced = call.headers.get("x-ms-cosmos-supported-query-features")
    if announced is None or emulator.settings.lenient:
        return plan(query, FEATURES)
    return plan(query, {x.strip() for x in announced.split(",")})


def change_feed(emulator: Emulator, call: Call) -> Answer:
    reach = reach_of(emulator, call)
    if len(reach.held) != 1:
        raise bad_request(
            "A change feed is read from one physical range at a time. Give the header "
            "x-ms-documentdb-partitionkeyrangeid, or a partition key.",
            CROSS_PARTITION_QUERY_NOT_SERVABLE,
        )
    (held,) = reach.held
    check_session(call, held)
    request = _feed_request(call, held, reach.scope)
    page = feed.read_page(emulator.store, held, request, call.within.paths)
    headers = range_headers(call, held) | {"etag": page.etag}
    if not page.entries:
        return Answer(status=304, headers=headers | {"x-ms-item-count": "0"})
    return _documents(call, page.entries, headers, charges.feed_page)


HANDLERS: Final[dict[str, Handler]] = {
    x.__name__: x
    for x in (
        create_item,
        upsert_item,
        replace_item,
        patch_item,
        delete_item,
        read_item,
        read_items,
        query_items,
        query_plan,
        change_feed,
        delete_items_of_key,
    )
}


def _write(
    emulator: Emulator, call: Call, write: Callable[[Transaction, PartitionKey], Written]
) -> Answer:
    key = call.key()
    number = call.within.number
    emulator.ranges.holding(number, key.epk)  # 410 before anything else
    with emulator.store.transaction():
        written = write(Transaction(emulator.ranges), key)
    held = emulator.ranges.holding(number, key.epk)
    emulator.split_if_overgrown(held.pid)
    return Answer(
        status=status_of(written),
        body=written.item.body if written.item and call.wants_body else b"",
        headers=item_headers(call, held, written.item),
        charge=written.charge,
    )


def _change(emulator: Emulator, call: Call, change: Callable[[Item], JsonObject]) -> Answer:
    name, conditions = call.address.item, call.conditions
    return _write(
        emulator,
        call,
        lambda tx, key: emulator.items.replace(
            tx, call.within, key, name, change=change, conditions=conditions
        ),
    )


def _sent_item(call: Call) -> JsonObject:
    """Return the item of a request; 413 if it was too long as it was sent, escapes counted."""
    check_size(len(call.body))
    return decoded_object(call.body)


def status_of(written: Written) -> int:
    if written.item is None:
        return 204
    return 201 if written.created else 200


def patch_change(body: Any, *, now: float) -> Callable[[Item], JsonObject]:
    """Return the change that a PATCH body asks for: its operations, under its condition."""
    operations = body.get("operations") if isinstance(body, dict) else body
    condition = body.get("condition") if isinstance(body, dict) else None
    if condition is not None and not isinstance(condition, str):
        raise bad_request('The condition of a patch is a text, "FROM c WHERE …".')

    def change(before: Item) -> JsonObject:
        item = before.value()
        patching.check_condition(condition is None or queries.fits(item, condition, now=now))
        changed = patching.patched(item, operations)
        if changed.get("id") != before.id:
            raise bad_request(f"A patch cannot change the id of an item, {before.id!r}.")
        return changed

    return change


def _names_a_key(call: Call, query: Query) -> bool:
    """Return whether the WHERE compares the partition key with a value, come what may."""

    def names(part: Expression | None) -> bool:
        if query.select.over is not None or not isinstance(part, Binary):
            return False
        if part.operator == "AND":
            return any(names(x) for x in operands(part))
        key = Property(root=query.select.item, steps=steps_of(call.within.paths[0]))
        return part.operator == "=" and key in {part.left, part.right}

    return names(query.select.where)


async def _query(emulator: Emulator, call: Call, query: Query) -> Answer:
    reach = reach_of(emulator, call)
    for held in reach.held:
        check_session(call, held)
    page = await emulator.work.page(
        _with_functions(emulator, call, query),
        lambda after, most: reach.scope.rows(emulator.store, after, most),
        limit=_page_size(call, query),
        continuation=call.headers.get("x-ms-continuation"),
    )
    headers = range_headers(call, *reach.held) | _metrics(call, page)
    if page.continuation is not None:
        headers["x-ms-continuation"] = page.continuation
    return _documents(
        call, page.results, headers, lambda size: charges.query(page.looked_at, size)
    )


def _page_size(call: Call, query: Query) -> int | None:
    """Return how many results a page has: all, where a client that merges scores asks.

    Python's client merges only what the first page of each range brings.
    """
    by_score = any(x.is_by_score for x in query.select.order)
    if by_score and "x-ms-documentdb-partitionkeyrangeid" in call.headers:
        return None
    return call.page_size()


def _with_functions(emulator: Emulator, call: Call, query: Query) -> Query:
    ask = asking(asyncio.get_running_loop())

    def source_of(name: str) -> str:
        find = emulator.scripts.named
        return ask(partial(find, call.within, ScriptKind.FUNCTION, name)).body

    budget = query.given.budget
    functions = UserFunctions(emulator.sandboxes, source_of, budget)
    return replace(query, given=replace(query.given, functions=functions))


def _metrics(call: Call, page: ResultPage) -> dict[str, str]:
    """Return what a client wants to know of a query; no index is used here."""
    found = {}
    if call.headers.get("x-ms-documentdb-populatequerymetrics", "").lower() == "true":
        found["x-ms-documentdb-query-metrics"] = _query_metrics(page)
    if call.headers.get("x-ms-cosmos-populateindexmetrics", "").lower() == "true":
        found["x-ms-cosmos-index-utilization"] = _NO_INDEXES
    return found


def _query_metrics(page: ResultPage) -> str:
    """Return all metrics that clients read; times are not taken apart here."""
    size = sum(map(len, page.results))
    times = dict.fromkeys(_TIMES, 0.0) | {"totalExecution": 1000 * page.seconds}
    counts = {
        "retrievedDocumentCount": page.looked_at,
        "retrievedDocumentSize": size,
        "outputDocumentCount": len(page.results),
        "outputDocumentSize": size,
        "instructionCount": 0,
        "indexUtilizationRatio": 0,
    }
    parts = [f"{k}TimeInMs={v:.2f}" for k, v in times.items()]
    return ";".join([*parts, *(f"{k}={v}" for k, v in counts.items())])


def _documents(
    call: Call, found: list[bytes], headers: dict[str, str], price: Callable[[int], float]
) -> Answer:
    """Put stored texts together to one answer, without parsing any."""
    head = b'{"_rid":"%s","Documents":[' % call.within.rid.encode()
    body = b"".join([head, b",".join(found), b'],"_count":%d}' % len(found)])
    headers["x-ms-item-count"] = str(len(found))
    return Answer(body=body, headers=headers, charge=price(len(body)))


def _feed_request(call: Call, held: PhysicalRange, scope: Scope) -> feed.FeedRequest:
    mode = call.headers["A-IM"].strip().lower()
    everything = mode == "full-fidelity feed"
    if not everything and mode not in {"incremental feed", "incremental-feed"}:
        raise bad_request(f"A-IM is {call.headers['A-IM']!r}: this is no change feed mode.")
    behind = call.headers.get("If-None-Match")
    since = feed.point_in_time(call.headers.get("If-Modified-Since"))
    if everything and (behind is None or since):
        raise bad_request(
            "The change feed with all versions and deletes starts from now (If-None-Match: *) "
            "or from a continuation, not from the beginning or a point in time."
        )
    return feed.FeedRequest(
        after=feed.position(behind, held.lsn),
        limit=call.page_size(),
        all_versions=everything,
        with_metadata=call.headers.get(_WIRE_FORMAT) == _WITH_METADATA,
        since=since,
        low=scope.low,
        high=scope.high,
    )

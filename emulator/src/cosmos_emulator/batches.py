"""Batches: many operations in one request, all or nothing, or each for itself (bulk).

They come, and are answered, as JSON or as HybridRow.
"""

from typing import Any, Final

import msgspec

from cosmos_emulator import charges, hybrid_rows
from cosmos_emulator.calls import Answer, Call, Emulator, Handler, item_headers
from cosmos_emulator.conditions import Conditions
from cosmos_emulator.documents import patch_change, status_of
from cosmos_emulator.errors import RANGE_GONE, CosmosError, bad_request
from cosmos_emulator.items import Item, Transaction, Written, replaced_by
from cosmos_emulator.json_values import JsonObject, decoded
from cosmos_emulator.partition_keys import PartitionKey
from cosmos_emulator.ranges import PhysicalRange

_MAX_IN_BATCH: Final = 100
_LARGEST_BATCH: Final = 2 * 1024 * 1024
_FAILED: Final = 400
_NOT_DONE: Final[JsonObject] = {"statusCode": 424, "requestCharge": 0}


def batch(emulator: Emulator, call: Call) -> Answer:
    """Run up to 100 operations on one partition key under one LSN, or in bulk."""
    operations: Any = (
        hybrid_rows.operations_of(call.body)
        if hybrid_rows.are_rows(call.body)
        else decoded(call.body)
    )
    if not isinstance(operations, list):
        raise bad_request(f"A batch is a list of 1 to {_MAX_IN_BATCH} operations.")
    if not operations:
        raise bad_request("Batch request has no operations.")
    if len(operations) > _MAX_IN_BATCH:
        raise bad_request(
            f"Batch request has more operations than what is supported. There are "
            f"{len(operations)}; {_MAX_IN_BATCH} is the limit."
        )
    if len(call.body) > _LARGEST_BATCH:
        raise CosmosError(413, "A batch may have 2 MB.")
    if call.headers.get("x-ms-cosmos-batch-atomic", "true").lower() == "true":
        return _atomic(emulator, call, operations)
    return _bulk(emulator, call, operations)


HANDLERS: Final[dict[str, Handler]] = {"batch": batch}


def _atomic(emulator: Emulator, call: Call, operations: list[Any]) -> Answer:
    key = call.key()
    results: list[JsonObject] = []
    try:
        with emulator.store.transaction():
            tx = Transaction(emulator.ranges)
            for operation in operations:  # one by one: an error leaves what was done so far
                results.append(_done(emulator, call, tx, key, operation))  # noqa: PERF401
    except CosmosError as error:
        results = _failed_batch(len(results), len(operations), error)
    held = emulator.ranges.holding(call.within.number, key.epk)
    return _answer(emulator, call, held, results)


def _bulk(emulator: Emulator, call: Call, operations: list[Any]) -> Answer:
    """Run each operation for itself, under a partition key of its own, in one range."""
    name = call.headers.get("x-ms-documentdb-partitionkeyrangeid")
    if name is None:
        raise bad_request(
            "A batch that is not atomic (bulk) names its range in the header "
            "x-ms-documentdb-partitionkeyrangeid."
        )
    held = emulator.ranges.named(call.within.number, name)
    stops = call.headers.get("x-ms-cosmos-batch-continue-on-error", "").lower() == "false"
    results: list[JsonObject] = []
    for operation in operations:
        try:
            results.append(_alone(emulator, call, held, operation))
        except CosmosError as error:
            results.append(_failed(error))
            if stops:
                break
    results += [_NOT_DONE] * (len(operations) - len(results))
    return _answer(emulator, call, emulator.ranges.named(call.within.number, name), results)


def _alone(emulator: Emulator, call: Call, held: PhysicalRange, operation: Any) -> JsonObject:
    given = operation.get("partitionKey") if isinstance(operation, dict) else None
    if not isinstance(given, str):
        raise bad_request('An operation in bulk has its partition key, such as "[\\"p1\\"]".')
    key = call.whole_key(call.within.keys.in_header(given))
    if not held.low <= key.epk < held.high:
        raise CosmosError(
            410, f"The key {key.text} is not in the range {held.id!r}.", RANGE_GONE
        )
    with emulator.store.transaction():
        return _done(emulator, call, Transaction(emulator.ranges), key, operation)


def _answer(
    emulator: Emulator, call: Call, held: PhysicalRange, results: list[JsonObject]
) -> Answer:
    emulator.split_if_overgrown(held.pid)
    charge = sum(x["requestCharge"] for x in results)
    failed = any(x["statusCode"] >= _FAILED for x in results)
    headers, body = item_headers(call, held, None), msgspec.json.encode(results)
    if hybrid_rows.are_rows(call.body):
        headers["Content-Type"] = hybrid_rows.CONTENT_TYPE
        body = hybrid_rows.written(results)
    return Answer(
        status=207 if failed else 200,
        body=body,
        headers=headers,
        charge=round(max(charge, charges.OTHER), 2),
    )


def _done(
    emulator: Emulator, call: Call, tx: Transaction, key: PartitionKey, operation: Any
) -> JsonObject:
    """Run one operation of a batch and return its line of the answer."""
    if not isinstance(operation, dict):
        raise bad_request("An operation of a batch is a JSON object.")
    kind, name = operation.get("operationType"), operation.get("id")
    body = operation.get("resourceBody")
    conditions = Conditions(
        if_match=_etag(operation, "ifMatch"), if_none_match=_etag(operation, "ifNoneMatch")
    )
    items, container = emulator.items, call.within
    match kind:
        case "Read":
            return _read_line(items.read(container, key, str(name)), conditions)
        case "Create":
            written = items.create(tx, container, key, _an_object(body))
        case "Upsert":
            written = items.upsert(tx, container, key, _an_object(body), conditions)
        case "Delete":
            written = items.delete(tx, container, key, str(name), conditions)
        case "Replace" | "Patch":
            is_patch, now = kind == "Patch", emulator.clock()
            change = patch_change(body, now=now) if is_patch else replaced_by(_an_object(body))
            written = items.replace(
                tx, container, key, str(name), change=change, conditions=conditions
            )
        case _:
            raise bad_request(f"A batch has no operation {kind!r}.")
    wants_body = call.wants_body and operation.get("minimalReturnPreference") is not True
    return _line(written, wants_body=wants_body)


def _etag(operation: JsonObject, name: str) -> str | None:
    found = operation.get(name)
    if found is not None and not isinstance(found, str):
        raise bad_request(f"{name} of an operation is an etag, a text, not {found!r}.")
    return found


def _an_object(body: Any) -> JsonObject:
    if not isinstance(body, dict):
        raise bad_request("The operation needs a resourceBody, a JSON object.")
    return body


def _line(written: Written, *, wants_body: bool) -> JsonObject:
    line: JsonObject = {"statusCode": status_of(written), "requestCharge": written.charge}
    if written.item is not None:
        line["eTag"] = written.item.etag
        if wants_body:
            line["resourceBody"] = msgspec.Raw(written.item.body)
    return line


def _read_line(found: Item, conditions: Conditions) -> JsonObject:
    line: JsonObject = {"requestCharge": charges.read(len(found.body)), "eTag": found.etag}
    if conditions.is_unmodified(found.etag):
        return line | {"statusCode": 304}
    return line | {"statusCode": 200, "resourceBody": msgspec.Raw(found.body)}


def _failed(error: CosmosError) -> JsonObject:
    line = {"statusCode": error.status, "subStatusCode": error.substatus, "requestCharge": 1}
    return line | ({"message": error.message} if error.message else {})


def _failed_batch(done: int, total: int, error: CosmosError) -> list[JsonObject]:
    """Return the answer of a batch of which one operation failed: the others are 424."""
    return [_failed(error) if i == done else _NOT_DONE for i in range(total)]

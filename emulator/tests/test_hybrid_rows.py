"""Batches of Azure's client for .NET: rows in, rows out, and the same done as by JSON.

No client for .NET was run. The bytes are those that it was seen to send and to read.
"""

import contextlib
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from cosmos_emulator import DEVELOPMENT_KEY, hybrid_rows
from cosmos_emulator.errors import CosmosError
from emulator.tests.by_hand import DOCS, Hand, signed
from emulator.tests.rows import OPERATION, RESULT, results, row, stream

AS_BATCH = {"x-ms-cosmos-is-batch-request": "True"}
BULK = AS_BATCH | {
    "x-ms-cosmos-batch-atomic": "False",
    "x-ms-documentdb-partitionkeyrangeid": "0",
}
NUMBERS = {"Create": 0, "Patch": 1, "Read": 2, "Delete": 4, "Replace": 5, "Upsert": 20}
SEEN_DELETE = (
    "81f0d8ff7f010a00000081f1d8ff7f1a0000003a5f3497817054e17f1304000000020000"
    "00036f6e651409057374616c65"
)
SEEN_READ = (
    "817054e17f1302000000020000001d687962726964726f772d6f7074696f6e732d676f6c64656e2d6974656d"
    "140a09726561642d65746167"
)
SEEN_RESULT = (
    "81f0d8ff7f010a00000081f1d8ff7f3f000000d5437d92817154e17f07c8000000000000002622303030306130"
    "34312d303030302d303830302d303030302d3661353736316231303030302210065555555555552540"
)


async def send(
    by_hand: Hand, body: bytes, headers: dict[str, str]
) -> tuple[int, bytes, Mapping[str, str]]:
    sent = signed("POST", DOCS, DEVELOPMENT_KEY) | headers
    url = by_hand.url.rstrip("/") + DOCS
    async with by_hand.session.post(url, data=body, headers=sent) as got:
        return got.status, await got.read(), got.headers


def as_row(operation: Mapping[str, Any]) -> bytes:
    kind = operation["operationType"]
    values = {**operation, "operationType": NUMBERS[kind], "resourceType": 2}
    if "resourceBody" in values:
        values["resourceBody"] = msgspec.json.encode(values["resourceBody"])
    return row(OPERATION, values)


def test_what_the_client_was_seen_to_send_and_to_read_is_what_is_read_and_written() -> None:
    conditional = {"operationType": "Delete", "id": "one", "ifMatch": "stale"}
    assert stream([as_row(conditional)]).hex() == SEEN_DELETE
    assert hybrid_rows.operations_of(bytes.fromhex(SEEN_DELETE)) == [
        conditional | {"resourceType": 2}
    ]
    (read,) = hybrid_rows.operations_of(stream([bytes.fromhex(SEEN_READ)]))
    assert (read["operationType"], read["ifNoneMatch"]) == ("Read", "read-etag")
    etag = '"0000a041-0000-0800-0000-6a5761b10000"'
    seen = {"statusCode": 200, "eTag": etag, "requestCharge": 32 / 3}
    assert hybrid_rows.written([seen | {"message": "is in no row"}]).hex() == SEEN_RESULT
    assert results(bytes.fromhex(SEEN_RESULT)) == [seen | {"subStatusCode": 0}]


def drawn(random: Random, key: str) -> dict[str, Any]:
    """Return an operation on one of a few items; its etags are still to be filled in."""
    kind, name = random.choice([*NUMBERS]), random.choice("abc")
    made: dict[str, Any] = {"operationType": kind}
    if kind not in ("Create", "Upsert"):
        made["id"] = name
    if kind == "Patch":
        value = random.choice([1, "x" * random.choice([1, 200, 20_000]), None])
        made["resourceBody"] = {"operations": [{"op": "add", "path": "/n", "value": value}]}
    elif kind not in ("Read", "Delete"):
        made["resourceBody"] = {"id": name, "pk": key, "n": random.randint(0, 9), "t": "é" * 70}
    condition = "ifNoneMatch" if kind == "Read" else "ifMatch"
    if kind != "Create" and random.random() < 0.4:
        made[condition] = random.choice(["current", "stale", "*"])
    if random.random() < 0.3:
        made["minimalReturnPreference"] = random.random() < 0.5
    return made


def shown(line: Mapping[str, Any]) -> dict[str, Any]:
    """Return what has to be the same of a result, whatever it came as."""
    body = line.get("resourceBody")
    if isinstance(body, bytes):
        body = msgspec.json.decode(body)
    own = {k: v for k, v in (body or {}).items() if not k.startswith("_") and k != "pk"}
    return {
        "status": (line["statusCode"], line.get("subStatusCode", 0)),
        "charge": line["requestCharge"],
        "etag": bool(line.get("eTag")),
        "body": None if body is None else own,
    }


@pytest.mark.parametrize("mode", ["atomic", "bulk"])
async def test_a_batch_does_the_same_as_rows_and_as_json(by_hand: Hand, mode: str) -> None:
    in_bulk = mode == "bulk"
    random, seen = Random(7), set[int]()
    etags = dict[tuple[str, str], str]()

    def filled(made: dict[str, Any], key: str) -> dict[str, Any]:
        changed = {"partitionKey": f'["{key}"]'} if in_bulk else {}
        for name in ("ifMatch", "ifNoneMatch"):
            if made.get(name) == "current":
                item = made.get("id") or made["resourceBody"]["id"]
                changed[name] = etags.get((key, item), '"none"')
        if "pk" in made.get("resourceBody", {}):
            changed["resourceBody"] = made["resourceBody"] | {"pk": key}
        return made | changed

    for _ in range(60):
        several = [drawn(random, "") for _ in range(random.randint(1, 6))]
        going_on = {"x-ms-cosmos-batch-continue-on-error": random.choice(["True", "False"])}

        async def asked(
            key: str, operations: Sequence[Any] = several, more: dict[str, str] = going_on
        ) -> tuple[int, list[Any]]:
            one = {"x-ms-documentdb-partitionkey": f'["{key}"]'}
            headers = BULK | more if in_bulk else AS_BATCH | one
            made = [filled(x, key) for x in operations]
            rows = key == "rows"
            body = stream([as_row(x) for x in made]) if rows else msgspec.json.encode(made)
            status, said, told = await send(by_hand, body, headers)
            kind = "octet-stream" if rows else "json"
            assert told["Content-Type"] == f"application/{kind}", said
            lines = results(said) if rows else msgspec.json.decode(said)
            for name in "abc":
                found = await by_hand.send("GET", f"{DOCS}/{name}", key=key)
                etags[key, name] = found.headers.get("etag", '"none"')
            return status, [shown(x) for x in lines]

        by_json, by_rows = await asked("json"), await asked("rows")
        assert by_rows == by_json
        assert len(by_rows[1]) == len(several)
        seen |= {x["status"][0] for x in by_rows[1]}
    assert seen >= {200, 201, 204, 304, 404, 409, 412, 424}


READ = {"operationType": 2, "resourceType": 2}
WHOLE = stream([row(OPERATION, READ | {"id": "a" * 200})])
REFUSED = {
    "1 bytes are missing": WHOLE[:-1],
    "another CRC-32": WHOLE[:-1] + b"b",
    "no row of version": WHOLE + b"\x80xxxx",
    "neither a segment nor a record": b"\x81" + b"\x00" * 40,
    "has no operations": WHOLE[:10],
    "2145473648 was due": stream([row(RESULT, {"statusCode": 200})]),
    "ifMatch is there twice": stream([row(OPERATION, READ) + b"\x14\x09\x01x" * 2]),
    "'y' of type 20 is not known": stream([row(OPERATION, READ) + b"\x14\x0ey\x01x"]),
    "'ifMatch' of type 7": stream([row(OPERATION, READ) + b"\x07\x09xxxx"]),
    "not UTF-8": stream([row(OPERATION, READ) + b"\x14\x09\x01\xff"]),
    "more than 5 bytes": stream([row(OPERATION, READ) + b"\x14\x09" + b"\xff" * 9]),
    "binaryId of an operation": stream([row(OPERATION, READ | {"binaryId": b"x"})]),
    "resources of type 1": stream([row(OPERATION, READ | {"resourceType": 1})]),
    "not valid JSON": stream([row(OPERATION, READ | {"resourceBody": b"{"})]),
    "not valid binary JSON": stream([row(OPERATION, READ | {"resourceBody": b"\x80"})]),
}


@pytest.mark.parametrize("says", REFUSED)
async def test_rows_that_are_none_or_ask_for_more_are_refused_by_name(
    by_hand: Hand, says: str
) -> None:
    headers = AS_BATCH | {"x-ms-documentdb-partitionkey": '["p"]'}
    status, said, _ = await send(by_hand, REFUSED[says], headers)
    assert (status, says in said.decode()) == (400, True), said


def test_bytes_that_were_cut_or_changed_are_refused_or_operations_and_nothing_else() -> None:
    random = Random(3)
    for _ in range(5_000):
        body = bytearray(WHOLE[: random.randint(1, len(WHOLE))])
        for _ in range(random.randint(0, 3)):
            body[random.randrange(len(body))] = random.randrange(256)
        body[0] = 0x81
        with contextlib.suppress(CosmosError):
            assert all("operationType" in x for x in hybrid_rows.operations_of(bytes(body)))

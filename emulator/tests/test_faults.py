"""Throttling, and faults on demand."""

import aiohttp
import pytest

from emulator.tests.by_hand import DOCS, Hand, Reply


async def put(by_hand: Hand, name: str) -> Reply:
    return await by_hand.send("POST", DOCS, {"id": name, "pk": "p"}, key="p")


async def ids(by_hand: Hand) -> list[str]:
    return (await by_hand.query("SELECT * FROM c")).ids


async def test_a_dropped_connection_gives_no_answer(by_hand: Hand) -> None:
    fault = {"effect": "drop", "operation": "upsert_item", "when": "after", "times": 1}
    await by_hand.control("POST", "faults", **fault)
    with pytest.raises(aiohttp.ClientConnectionError):
        await by_hand.send(
            "POST", DOCS, {"id": "a", "pk": "p"}, {"x-ms-documentdb-is-upsert": "true"}, key="p"
        )
    assert await ids(by_hand) == ["a"]
    counts = await by_hand.control("GET", "requests")
    assert counts["upsert_item"] == {"0": 1}


@pytest.mark.parametrize(
    ("status", "substatus"), [(410, 1002), (410, 1007), (404, 1002), (449, 0), (429, 3200)]
)
async def test_a_fault_can_be_any_error_and_strike_one_range_only(
    by_hand: Hand, status: int, substatus: int
) -> None:
    await by_hand.split()
    body = {"effect": "error", "operation": "change_feed", "range": "2", "container": "c"}
    code = {"status": status, "substatus": substatus, "retry_after_ms": 7}
    await by_hand.control("POST", "faults", **body, **code)
    got = await by_hand.feed(range_="2")
    assert (got.status, got.substatus) == (status, substatus)
    assert got.headers["x-ms-retry-after-ms"] == "7"
    assert (await by_hand.feed(range_="1")).status == 304
    assert (await put(by_hand, "a")).status == 201
    await by_hand.control("DELETE", "faults")
    assert (await by_hand.feed(range_="2")).status == 304


async def test_a_fault_finds_the_range_of_a_partition_key(by_hand: Hand) -> None:
    low, high = await by_hand.split()  # "p" lies in the high half
    await by_hand.control("POST", "faults", effect="error", range=high["id"], status=503)
    got = await put(by_hand, "a")
    await by_hand.control("DELETE", "faults")
    await by_hand.control("POST", "faults", effect="error", range=low["id"], status=503)
    other = await put(by_hand, "b")
    assert sorted((got.status, other.status)) == [201, 503]


async def test_a_fault_that_makes_no_sense_is_refused_with_advice(by_hand: Hand) -> None:
    for body, advice in (
        ({"effect": "explode"}, "Invalid enum value"),
        ({"effect": "drop", "operation": "fly"}, "there are *, writes, reads"),
        ({"effect": "drop", "colour": 1}, "unknown field"),
        ({"effect": "drop", "container": "nowhere"}, "there are: c"),
        ({"effect": "drop", "container": "c", "range": "7"}, "there are: 0"),
        ({"effect": "drop", "range": "7"}, "there are: 0"),
    ):
        async with by_hand.session.post(f"{by_hand.url}_emulator/faults", json=body) as got:
            assert got.status == 400
            assert advice in await got.text()


async def test_beyond_a_rate_of_requests_the_answer_is_429_with_the_time_to_wait(
    by_hand: Hand,
) -> None:
    await by_hand.control("POST", "throttle", requests_per_second=0.001, container="c")
    answers = [await put(by_hand, str(i)) for i in range(3)]
    assert [x.status for x in answers] == [201, 429, 429]
    refused = answers[-1]
    assert refused.substatus == 3200
    assert 500_000 < int(refused.headers["x-ms-retry-after-ms"]) <= 1_000_000
    assert (await by_hand.control("GET", "throttle"))["refused"] == 2
    await by_hand.control("DELETE", "throttle")
    assert {(await put(by_hand, f"x{i}")).status for i in range(9)} == {201}


async def test_beyond_a_budget_of_request_units_the_answer_is_429(by_hand: Hand) -> None:
    await by_hand.control("POST", "throttle", ru_per_second=0.001)
    answers = [(await put(by_hand, str(i))).status for i in range(3)]
    assert answers == [201, 429, 429]  # the first one overdraws it

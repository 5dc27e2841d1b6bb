"""``/_emulator``: what it refuses, and how tests go back to where they were."""

import asyncio
from pathlib import Path

import pytest

from cosmos_emulator import EmulatorSettings
from cosmos_emulator.testing import running
from emulator.tests.by_hand import DOCS, Hand, hand


async def put(by_hand: Hand, name: str) -> None:
    answer = await by_hand.send("POST", DOCS, {"id": name, "pk": "p"}, key="p")
    assert answer.status == 201


async def ids(by_hand: Hand, range_: str = "0") -> list[str]:
    return (await by_hand.query("SELECT * FROM c", range_=range_)).ids


@pytest.mark.parametrize(
    ("verb", "path"),
    [("GET", "nothing"), ("POST", "nothing/else"), ("GET", "split"), ("PUT", "faults")],
)
async def test_what_is_not_there_is_refused_with_what_is(
    by_hand: Hand, verb: str, path: str
) -> None:
    async with by_hand.session.request(verb, f"{by_hand.url}_emulator/{path}") as got:
        text = await got.text()
        assert (got.status, f"{verb} /_emulator/{path}" in text) == (404, True)
        assert "POST /_emulator/split" in text


@pytest.mark.parametrize("is_kept", [False, True])
async def test_a_reset_goes_back_to_the_snapshot(tmp_path: Path, *, is_kept: bool) -> None:
    settings = EmulatorSettings(port=0, data=tmp_path if is_kept else None)
    async with running(settings) as url, hand(url) as by_hand:
        await put(by_hand, "before")
        await by_hand.control("POST", "snapshot")
        for _ in range(2):
            await put(by_hand, "after")
            await by_hand.send("DELETE", f"{DOCS}/before", key="p")
            await by_hand.split()
            await by_hand.control("POST", "faults", effect="error", operation="query_items")
            await by_hand.control("POST", "reset")
            assert await ids(by_hand) == ["before"]
            assert await by_hand.control("GET", "faults") == []
        told = await by_hand.control("GET", "")
        assert [x["items"] for x in told[0]["ranges"]] == [1]
    async with running(settings) as url, hand(url) as by_hand:
        assert await ids(by_hand) == (["before"] if is_kept else [])


async def test_a_reset_without_a_snapshot_empties_the_account(by_hand: Hand) -> None:
    await put(by_hand, "1")
    await by_hand.control("POST", "reset")
    assert await by_hand.control("GET", "") == []
    assert (await by_hand.send("GET", f"{DOCS}/1", key="p")).status == 404


async def test_a_change_of_ranges_that_is_under_way_holds_off_a_reset(by_hand: Hand) -> None:
    await by_hand.control("POST", "snapshot")
    splitting = asyncio.create_task(by_hand.split(seconds=0.5))
    while (await by_hand.feed()).status != 410:
        pass  # it has not begun
    async with by_hand.session.post(f"{by_hand.url}_emulator/reset") as refused:
        assert (refused.status, "split" in await refused.text()) == (409, True)
    await splitting
    await by_hand.control("POST", "reset")
    assert [x["id"] for x in (await by_hand.control("GET", ""))[0]["ranges"]] == ["0"]

"""One look serves all who watch, and none of them holds up another."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from changefeed.host.page.live import ASK_AGAIN, Live, TooManyWatchers
from changefeed.host.page.view import Known, Ownership, View, range_row
from changefeed.runtime.errors import StoreUnavailable

EVERY = 2.0


class Fleet:
    """Says something new at each look."""

    def __init__(self) -> None:
        self.looks = 0
        self.away = False

    async def look(self) -> View:
        self.looks += 1
        await asyncio.sleep(0.5)
        if self.away:
            raise StoreUnavailable("the container is away")
        row = range_row(Ownership(name="r", owner="anna"), Known(lag=self.looks))
        return View(
            at=float(self.looks),
            me="",
            feed="memory:",
            leases="memory:",
            expiration=30.0,
            hosts=[],
            ranges=[row],
        )


def here() -> bool:
    return False


async def whole(live: Live) -> Any:
    return json.loads(await live.whole(compressed=False))


def sent(event: bytes) -> Any:
    kind, _, data = event.partition(b"\n")
    assert kind == b"event: change"
    return msgspec.json.decode(data.removeprefix(b"data: "))


async def test_many_who_ask_at_once_share_one_look() -> None:
    fleet = Fleet()
    live = Live(fleet.look, every=EVERY)
    documents = await asyncio.gather(*(whole(live) for _ in range(50)))
    assert fleet.looks == 1
    assert {x["number"] for x in documents} == {documents[0]["number"]}
    await asyncio.sleep(EVERY)
    assert (await whole(live))["number"] == documents[0]["number"] + 1


async def test_nobody_looks_while_nobody_watches() -> None:
    fleet = Fleet()
    live = Live(fleet.look, every=EVERY)
    async with live.looking():
        await asyncio.sleep(100)
        assert fleet.looks == 0
        events = live.events(-1, here)
        assert await anext(events) == ASK_AGAIN
        await asyncio.sleep(100)
        watched = fleet.looks
        assert watched > 10
        await events.aclose()
        await asyncio.sleep(100)
        assert fleet.looks <= watched + 1


async def test_a_watcher_is_sent_what_has_changed_and_the_same_bytes_as_any_other() -> None:
    live = Live(Fleet().look, every=EVERY)
    async with live.looking():
        number = (await whole(live))["number"]
        one, other = live.events(number, here), live.events(number, here)
        event = await anext(one)
        assert sent(event)["changed"] == [{"name": "r", "lag": 2}]
        assert sent(event)["number"] == number + 1
        assert await anext(other) == event
        assert sent(await anext(one))["changed"] == [{"name": "r", "lag": 3}]


async def test_a_watcher_that_does_not_read_misses_some_and_is_told_to_ask_again() -> None:
    live = Live(Fleet().look, every=EVERY)
    async with live.looking():
        number = (await whole(live))["number"]
        quick, slow = live.events(number, here), live.events(number, here)
        await anext(slow)
        for _ in range(3):
            await anext(quick)
        assert (await anext(slow)).count(b"event: change") == 2, "a little late is made up"
        for _ in range(20):
            await anext(quick)
        assert await anext(slow) == ASK_AGAIN
        assert sent(await anext(slow))


async def test_watchers_are_limited_and_one_that_has_gone_makes_room() -> None:
    live = Live(Fleet().look, every=EVERY)
    gone = False
    watching = [live.events(-1, lambda: gone) for _ in range(32)]
    for events in watching:
        await anext(events)
    with pytest.raises(TooManyWatchers):
        await anext(live.events(-1, here))
    gone = True
    assert await anext(watching[0], b"none") == b"none"
    assert await anext(live.events(-1, here)) == ASK_AGAIN


async def test_a_container_that_is_away_is_said_and_the_last_view_stays() -> None:
    fleet = Fleet()
    live = Live(fleet.look, every=EVERY)
    async with live.looking():
        first = await whole(live)
        fleet.away = True
        events = live.events(first["number"], here)
        change = sent(await anext(events))
        assert change["trouble"] == "the container is away"
        shown = await whole(live)
        assert (shown["trouble"], shown["view"]) == (change["trouble"], first["view"])
        fleet.away = False
        assert sent(await anext(events))["trouble"] is None


async def test_a_close_lets_every_watcher_go() -> None:
    live = Live(Fleet().look, every=EVERY)
    async with live.looking():
        number = (await whole(live))["number"]
        events = live.events(number, here)
    assert await anext(events, b"none") == b"none"

"""One look serves all who watch, and none of them holds up another."""

import asyncio
import json
from typing import Any

import msgspec
import pytest
from aiohttp import web

from changefeed.host.page.state import PageState
from changefeed.host.page.stream import ASK_AGAIN, EventStream
from changefeed.runtime.errors import StoreUnavailable
from tests.support import make

EVERY = 2.0


class Fleet:
    """Says something new at each look."""

    def __init__(self) -> None:
        self.looks = 0
        self.away = False

    async def look(self) -> PageState:
        self.looks += 1
        await asyncio.sleep(0.5)
        if self.away:
            raise StoreUnavailable("the container is away")
        row = make.range_seen("r", "anna", lag=self.looks)
        return PageState(status=make.fleet_seen([row], seconds=self.looks), letters=3)


def here() -> bool:
    return False


async def whole(stream: EventStream) -> Any:
    return json.loads(await stream.whole(compressed=False))


def sent(event: bytes) -> Any:
    kind, _, data = event.partition(b"\n")
    assert kind == b"event: change"
    return msgspec.json.decode(data.removeprefix(b"data: "))


async def test_many_who_ask_at_once_share_one_look() -> None:
    fleet = Fleet()
    stream = EventStream(fleet.look, every=EVERY)
    documents = await asyncio.gather(*(whole(stream) for _ in range(50)))
    assert fleet.looks == 1
    assert {x["number"] for x in documents} == {documents[0]["number"]}
    await asyncio.sleep(EVERY)
    assert (await whole(stream))["number"] == documents[0]["number"] + 1


async def test_a_watcher_is_sent_what_has_changed_and_the_same_bytes_as_any_other() -> None:
    stream = EventStream(Fleet().look, every=EVERY)
    async with stream.looking():
        number = (await whole(stream))["number"]
        one, other = stream.events(number, here), stream.events(number, here)
        event = await anext(one)
        assert sent(event)["changed"] == [{"range": "r", "lag": 2}]
        assert sent(event)["number"] == number + 1
        assert await anext(other) == event
        assert sent(await anext(one))["changed"] == [{"range": "r", "lag": 3}]


async def test_watchers_are_limited_and_one_that_has_gone_makes_room() -> None:
    stream = EventStream(Fleet().look, every=EVERY)
    gone = False
    watching = [stream.events(-1, lambda: gone) for _ in range(32)]
    for events in watching:
        await anext(events)
    with pytest.raises(web.HTTPServiceUnavailable):
        await anext(stream.events(-1, here))
    gone = True
    assert await anext(watching[0], b"none") == b"none"
    assert await anext(stream.events(-1, here)) == ASK_AGAIN


async def test_a_container_that_is_away_is_said_and_the_last_view_stays() -> None:
    fleet = Fleet()
    stream = EventStream(fleet.look, every=EVERY)
    async with stream.looking():
        first = await whole(stream)
        fleet.away = True
        events = stream.events(first["number"], here)
        change = sent(await anext(events))
        assert change["trouble"] == "the container is away"
        shown = await whole(stream)
        assert (shown["trouble"], shown["view"]) == (change["trouble"], first["view"])
        fleet.away = False
        assert sent(await anext(events))["trouble"] is None


async def test_a_close_lets_every_watcher_go() -> None:
    stream = EventStream(Fleet().look, every=EVERY)
    async with stream.looking():
        number = (await whole(stream))["number"]
        events = stream.events(number, here)
    assert await anext(events, b"none") == b"none"

"""What lies between hosts and stores in troubled worlds: slow replicas, stuck requests."""

import asyncio
from random import Random

import pytest

from .network import Link, Replicas, Server, Way, Weather


class Letters:
    """A store of records with one value each, which counts as its members, too."""

    def __init__(self) -> None:
        self.records: dict[str, str] = {}

    async def read(self, name: str) -> str | None:
        return self.records.get(name)

    async def create(self, name: str, value: str) -> None:
        self.records.setdefault(name, value)

    async def replace(self, name: str, value: str) -> None:
        self.records[name] = value

    async def members(self) -> list[str]:
        return sorted(self.records.values())


def links(store: Letters, *ways: Way, weather: Weather | None = None) -> list[Link]:
    """Return links that share what replicas show."""
    replicas, random = Replicas(), Random(1)
    servers = [Server(store, replicas) for _ in ways]
    there = weather or Weather()
    return [Link(x, there, random, y) for x, y in zip(servers, ways, strict=True)]


def lagging() -> Way:
    return Way(down=lambda: False, stale_reads=lambda: 1.0)


async def test_a_read_may_show_what_others_have_written_over_and_nothing_older_later() -> None:
    writer, *readers = links(Letters(), *[lagging()] * 20)
    for value in "xyz":
        await writer.replace("r1", value)
    shown = [[await x.read("r1") for _ in range(3)] for x in readers]
    assert {y for x in shown for y in x} == {None, "x", "y", "z"}
    for one in shown:
        assert one == sorted(one, key=lambda x: x or "")


async def test_a_client_is_shown_its_own_last_write() -> None:
    a, b = links(Letters(), lagging(), lagging())
    await b.replace("r1", "x")
    await a.replace("r1", "y")
    assert {await a.read("r1") for _ in range(20)} == {"y"}
    assert "x" in [await b.read("r1") for _ in range(20)]


async def test_no_replica_lags_for_longer_than_some_seconds() -> None:
    a, b = links(Letters(), lagging(), lagging())
    await a.replace("r1", "x")
    await a.replace("r1", "y")
    await asyncio.sleep(6)
    assert await b.read("r1") == "y"


async def test_a_process_whose_replica_stands_still_sees_members_as_they_were() -> None:
    held = [False]
    (a,) = links(Letters(), Way(down=lambda: False, lags=lambda: held[0]))
    await a.create("h0", "x")
    held[0] = True
    assert await a.members() == ["x"]
    await a.create("h1", "y")
    assert await a.members() == ["x"]
    held[0] = False
    assert await a.members() == ["x", "y"]


@pytest.mark.parametrize("late", [30.0, None])
async def test_a_request_that_got_stuck_arrives_late_or_never(late: float | None) -> None:
    store = Letters()
    way = Way(down=lambda: False, comes_late=lambda _: late)
    (a,) = links(store, way, weather=Weather(stall=1.0))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(10):
            await a.create("r1", "x")
    assert store.records == {}
    await asyncio.sleep(30)
    assert store.records == ({} if late is None else {"r1": "x"})

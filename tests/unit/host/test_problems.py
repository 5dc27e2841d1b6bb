"""What counts as a problem of a fleet, and how status shows it."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest

from changefeed.feeds.errors import FeedError, FeedRefused, FeedUnavailable
from changefeed.feeds.feed import FeedRange
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.endpoints import Answers
from changefeed.host.problems import problems_of_leases
from changefeed.host.snapshot import FleetInspector, Snapshot
from changefeed.leases.health import RangeHealth
from changefeed.leases.keymap import KeyMap
from changefeed.leases.lease import HostName, Incarnation, Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet
from tests.support import make

NOW = 1_000_000.0
A = HostName("anna")


def owned(name: str, *, stamp: float | None = NOW) -> Lease:
    lease = make.lease(name, at="0")
    return replace(lease.taken_by(A, Incarnation("a-1")), stamp=stamp)


def found(*leases: Lease) -> list[tuple[str, str | None, str | None]]:
    readable = {x.range_id for x in KeyMap(leases).readable()}
    problems = problems_of_leases(leases, readable=readable, now=NOW, longest_still=330)
    return [(x.kind, x.range, x.owner) for x in problems]


def test_each_trouble_is_a_problem_with_its_owner() -> None:
    failing, stuck = RangeHealth(failing_since=5.0, last_error="x"), RangeHealth().stuck(6.0)
    assert found(
        owned("r0").with_health(failing),
        owned("r1").with_health(failing.stuck(6.0)),
        owned("r2").with_health(stuck).released(),
        owned("r3").paused_because("bad data"),
        owned("r4", stamp=NOW - 331),
        owned("r5", stamp=NOW - 329),
        owned("r6", stamp=None),
    ) == [
        ("failing", "r0", "anna"),
        ("failing", "r1", "anna"),
        ("stuck", "r1", "anna"),
        ("stuck", "r2", None),
        ("unowned", "r2", None),
        ("paused", "r3", "anna"),
        ("expired", "r4", "anna"),
    ]


# As they are shown


@asynccontextmanager
async def failing_fleet(leases: MemoryLeases, *, ranges: int = 1) -> AsyncIterator[Fleet]:
    async def process(_changes: Sequence[object]) -> None:
        raise ValueError("no such table")

    async with Fleet(MemoryFeed(ranges), leases, observer=process) as fleet:
        fleet.append("k")
        fleet.start("anna")
        await asyncio.sleep(30)
        yield fleet


async def looked(fleet: Fleet) -> Snapshot:
    stamps = [x.stamp for x in await fleet.container.list() if x.stamp is not None]
    inspector = FleetInspector(
        make.settings("status", {}),
        fleet.container,
        fleet.feed,
        None,
        wall=lambda: max(stamps, default=NOW),
    )
    return await inspector.look()


async def test_a_look_says_as_json_what_fails_and_since_when() -> None:
    async with failing_fleet(MemoryLeases()) as fleet:
        seen = await looked(fleet)
        (problem,) = json.loads(msgspec.json.encode(seen))["problems"]
        since = problem.pop("since")
        assert problem == {
            "kind": "failing",
            "range": "r0",
            "owner": "anna",
            "message": "ValueError: no such table",
        }
        assert since == json.loads(msgspec.json.encode(seen.leases[0].failing_since))


class Away(MemoryFeed):
    """A feed that could be opened, and does not answer."""

    async def ranges(self) -> Sequence[FeedRange]:
        raise FeedUnavailable("no answer")


@pytest.mark.parametrize(
    ("no_feed", "shown_as"),
    [
        (FeedRefused("another one"), ("refused", "another one")),
        (FeedUnavailable("away"), ("unavailable", "away")),
        (None, ("unavailable", "no answer")),
    ],
)
async def test_a_look_shows_why_the_feed_cannot_be_read(
    no_feed: FeedError | None, shown_as: tuple[str, str]
) -> None:
    feed = None if no_feed else Away(1)
    seen = await FleetInspector(make.settings("x", {}), MemoryLeases(), feed, no_feed).look()
    assert [(x.kind, x.message) for x in seen.problems] == [shown_as]


async def test_a_host_with_a_failing_range_is_ready_and_names_it() -> None:
    async with failing_fleet(MemoryLeases()) as fleet:
        answer = await Answers("anna", None, fleet.hosts["anna"]).answer("/readyz")
        document = json.loads(answer.body)
        assert (answer.status, document["ready"], document["problems"]) == (200, True, [])
        assert [(x["range"], x["kind"]) for x in document["ranges"]] == [("r0", "failing")]


async def test_the_leases_of_a_host_are_shown_with_how_their_observers_get_on() -> None:
    async with failing_fleet(MemoryLeases(), ranges=2) as fleet:
        host = fleet.hosts["anna"]
        answer = await Answers("anna", None, host).answer("/leases")
        shown = {x["range"]: x for x in json.loads(answer.body)["leases"]}
        health = {
            name: {
                key: x[key]
                for key in ("last_progress", "failing_since", "stuck_since", "last_error")
            }
            for name, x in shown.items()
        }
        (troubled,) = [x for x, y in host.range_health.items() if y.in_trouble]
        (well,) = shown.keys() - {troubled}
        assert health[well] == dict.fromkeys(health[well])
        assert health[troubled] == {
            "last_progress": None,
            "failing_since": host.range_health[troubled].failing_since,
            "stuck_since": None,
            "last_error": "ValueError: no such table",
        }

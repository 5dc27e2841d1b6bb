"""The plot: load the feed, start hosts, kill one, start another, stop all; and its proof."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random

import msgspec

from changefeed.feeds.eventlog import DEFAULT_PARTS, EventLog, EventLogWriter, create_log
from changefeed.feeds.feed import Feed
from changefeed.leases.addresses import open_container
from changefeed.leases.container import LeaseContainer

from .changes import records
from .data import Sample, zones
from .deliveries import turns
from .hosts import Hosts, Job
from .observer import Carrier, newest_figures
from .proof import Proof, prove, totals
from .screen import Screen, Show
from .straight import Expected, straight_from
from .watch import Availability, look

_BATCH = 10_000
_KILL_AT = 0.4
_LOOK_INTERVAL = 0.25
_LONGEST_STANDSTILL = 60.0
_PAGES = 40  # at least so many for each range, or a kill would hit nothing half done


class Standstill(Exception):
    """The hosts live and nothing moves."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to play. ``seconds`` is how long delivery is to take at the least.

    ``tables`` says whether the second half is played, in which Spark makes tables.
    """

    scale: float = 1.0
    seed: int = 2013
    hosts: int = 4
    seconds: float = 15.0
    tables: bool = True

    @property
    def sample(self) -> Sample:
        return Sample(scale=self.scale, seed=self.seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where everything is."""

    directory: Path

    @property
    def plan(self) -> Path:
        return self.directory / "plan.json"

    @property
    def log(self) -> Path:
        return self.directory / "log"

    @property
    def leases(self) -> str:
        return f"sqlite:{self.directory / 'leases.db'}"

    @property
    def observed(self) -> Path:
        return self.directory / "observed"

    def read_plan(self) -> Plan:
        return msgspec.json.decode(self.plan.read_bytes(), type=Plan)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[tuple[Feed, LeaseContainer]]:
        async with EventLog.open(self.log) as feed, open_container(self.leases) as container:
            yield feed, container


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the hosts made of the data: the proof, and what it was held against.

    ``observed`` are the figures that the observers kept, by carrier.
    """

    proof: Proof
    expected: Expected
    observed: Mapping[str, Carrier]


async def play(place: Place, plan: Plan, screen: Screen) -> None:
    """Play the whole plot. The directory must be new or empty.

    Raise ``HostEnded`` or ``Standstill`` if the hosts do not do as they should.
    """
    place.plan.write_bytes(msgspec.json.encode(plan))
    place.observed.mkdir()
    total = await _load(place, plan, screen)
    job = Job(
        feed=f"eventlog:{place.log}",
        leases=place.leases,
        observed=place.observed,
        logs=place.directory / "logs",
        page_size=max(1, min(1000, total // DEFAULT_PARTS // _PAGES)),
        rate=total / DEFAULT_PARTS / plan.seconds if plan.seconds else None,
    )
    async with place.opened() as (feed, container), Hosts(job) as hosts:
        with screen.live() as show:
            fleet = _Fleet(hosts, feed, container, total=total, show=show)
            await _perform(fleet, hosts, plan, screen)


async def prove_hosts(place: Place) -> Outcome:
    """Hold what the hosts of a run left behind against the data."""
    expected = straight_from(place.read_plan().sample.rows())
    figures = [newest_figures(x) for x in place.observed.iterdir()]
    async with place.opened() as (feed, container):
        sight = await look(feed, container, total=expected.changes)
    return Outcome(
        proof=prove(expected, turns(place.observed), figures, sight.leases),
        expected=expected,
        observed=totals(figures),
    )


async def _load(place: Place, plan: Plan, screen: Screen) -> int:
    """Append the changes of all flights in the order of their times; return how many."""
    screen.say("reading the flights that left New York City in 2013")
    began, total = time.monotonic(), 0
    await create_log(place.log)
    async with EventLogWriter.open(place.log) as writer:
        changes = records(plan.sample.rows(), zones())
        while batch := list(islice(changes, _BATCH)):
            await writer.append(batch)
            total += len(batch)
    screen.say(f"{total:,} changes loaded in {time.monotonic() - began:.1f} s")
    return total


async def _perform(fleet: "_Fleet", hosts: Hosts, plan: Plan, screen: Screen) -> None:
    names = [f"demo-{n + 1}" for n in range(plan.hosts + 1)]
    for name in names[:-1]:
        await hosts.start(name)
    screen.say(f"started {plan.hosts} hosts{_pace(plan)}")
    sight = await fleet.until(lambda x: x.done >= _KILL_AT * x.total)
    busy = [x for x in hosts.running if sight.held_by(x)]
    victim = Random(plan.seed).choice(busy)  # noqa: S311 - picks a victim, guards nothing
    await hosts.kill(victim)
    screen.say(f"killed {victim} (SIGKILL), which held {len(sight.held_by(victim))} leases")
    await hosts.start(names[-1])
    screen.say(f"started {names[-1]}")
    await fleet.until(lambda x: not x.held_by(victim))
    screen.say(f"{victim} owns nothing any more: its leases expired and were taken over")
    await fleet.until(lambda x: x.done == x.total)
    screen.say("nothing is left to do: stopping all hosts (SIGTERM)")
    await hosts.stop_all()
    await fleet.look()
    screen.say("all hosts have stopped")


def _pace(plan: Plan) -> str:
    if not plan.seconds:
        return ""
    return f", which take {plan.seconds:g} s at the least (--seconds 0 for full speed)"


class _Fleet:
    """Watches the fleet, and shows what it sees."""

    def __init__(
        self,
        hosts: Hosts,
        feed: Feed,
        container: LeaseContainer,
        *,
        total: int,
        show: Show,
    ) -> None:
        self._hosts = hosts
        self._feed = feed
        self._container = container
        self._total = total
        self._show = show

    async def look(self) -> Availability:
        sight = await look(self._feed, self._container, total=self._total)
        self._show(sight, self._hosts.states)
        return sight

    async def until(self, condition: Callable[[Availability], bool]) -> Availability:
        """Watch until it is so. Raise if a host ends by itself, or if nothing moves."""
        before, since = None, time.monotonic()
        while not condition(sight := await self.look()):
            self._hosts.check()
            seen, now = (sight.done, sight.owners), time.monotonic()
            if seen != before:
                before, since = seen, now
            if now - since > _LONGEST_STANDSTILL:
                raise Standstill(
                    f"nothing has moved for {_LONGEST_STANDSTILL:g} s, at {sight.done:,} of "
                    f"{sight.total:,} changes; look at the hosts' logs (run with --keep)"
                )
            await asyncio.sleep(_LOOK_INTERVAL)
        return sight

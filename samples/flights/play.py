"""The plot: load the feed, start hosts, kill one, start another, stop all; and its proof."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from changefeed.leases.addresses import open_container
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.hashing import DEFAULT_PARTS

from .changes import in_order, records
from .data import zones
from .deliveries import turns
from .fleet import Fleet, finish, replace_one, start_hosts
from .hosts import HostJob, page_size
from .observer import Carrier
from .place import AtRest, Place, Plan
from .processes import Processes
from .proof import Proof, prove, totals
from .screen import Screen
from .straight import Expected, straight_from

_BATCH = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the hosts made of the data: the proof, and what it was held against.

    ``observed`` are the figures that the observers kept, by carrier.
    """

    proof: Proof
    expected: Expected
    observed: Mapping[str, Carrier]
    at_rest: AtRest


async def play(place: Place, plan: Plan, screen: Screen) -> None:
    """Play the whole plot. The directory must be new or empty.

    Raise ``ProcessEnded`` or ``Standstill`` if the processes do not do as they should.
    """
    place.plan.write_bytes(msgspec.json.encode(plan))
    place.observed.mkdir()
    total = await _load(place, plan, screen)
    job = HostJob(
        feed=place.feed,
        leases=place.leases,
        observed=place.observed,
        logs=place.logs,
        page_size=page_size(total),
        rate=total / DEFAULT_PARTS / plan.seconds if plan.seconds else None,
    )
    async with open_container(place.leases) as container, Processes(job) as hosts:
        with screen.live() as show:
            fleet = Fleet(hosts, container, place, total=total, show=show)
            await start_hosts(hosts, plan, screen)
            await replace_one(fleet, hosts, plan, screen)
            await finish(fleet, hosts, screen)


async def prove_hosts(place: Place) -> Outcome:
    """Hold what the hosts of a run left behind against the data."""
    expected = straight_from(place.read_plan().sample.rows())
    figures, at_rest = place.figures(), await place.at_rest()
    return Outcome(
        proof=prove(expected, turns(place.observed), figures, at_rest.leases),
        expected=expected,
        observed=totals(figures.values()),
        at_rest=at_rest,
    )


async def _load(place: Place, plan: Plan, screen: Screen) -> int:
    """Append the changes of all flights in the order of their times; return how many."""
    screen.say("reading the flights that left New York City in 2013")
    began = time.monotonic()
    happened = in_order(plan.sample.rows(), zones())
    await create_log(place.log)
    async with EventLogWriter.open(place.log) as writer:
        for begin in range(0, len(happened), _BATCH):
            await writer.send_many(records(happened[begin : begin + _BATCH]))
    screen.say(f"{len(happened):,} changes loaded in {time.monotonic() - began:.1f} s")
    return len(happened)

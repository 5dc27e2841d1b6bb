"""The plot over a cluster: hosts read what a producer appends, and brokers come and go.

Two brokers start, and divide the ranges; a third joins in the middle, and one is killed with
SIGKILL. Each time an era ends and the next begins. The producer goes on, and so do the
hosts, of which one is killed, too.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from random import Random

from changefeed.feeds.eventlog.hashing import DEFAULT_PARTS
from changefeed.leases.addresses import open_container
from samples.delays.tables import COLLECTION

from .brokers import BrokerJob, Division, free_ports
from .changes import Happened, in_order
from .data import zones
from .fleet import Fleet, Standstill, finish, replace_one, start_hosts
from .hosts import HostJob, page_size
from .place import Place, Plan
from .processes import Processes
from .producing import Producing
from .screen import Screen

_NAMES = ("broker-1", "broker-2", "broker-3")
_JOIN_AT, _KILL_AT = 0.2, 0.6
_BEFORE_JOINED, _BEFORE_KILLED, _ON_THEIR_WAY = 0.33, 0.64, 0.02
"""The producer waits there, so each era has about a third: a batch of Spark is of one era."""
_PATIENCE = 120.0
_LOOK_INTERVAL = 0.1


async def play_cluster(place: Place, plan: Plan, screen: Screen) -> None:
    """Play the plot up to the end of the hosts, and stop the brokers.

    Raise ``ProcessEnded`` or ``Standstill`` if the processes do not do as they should.
    """
    screen.say("reading the flights that left New York City in 2013")
    happened = in_order(plan.sample.rows(), zones())
    screen.say(f"{len(happened):,} changes to append")
    job = BrokerJob(cluster=place.cluster, logs=place.logs, ports=free_ports(_NAMES))
    address = job.address(COLLECTION)
    async with Processes(job) as brokers, Division.open(address) as division:
        cluster = _Cluster(address, brokers, division, screen)
        await cluster.start(*_NAMES[:2])
        await division.create_collection(DEFAULT_PARTS)
        await cluster.settled()
        await _play_hosts(place, plan, screen, happened, cluster)
        await brokers.stop_all()
        screen.say("all brokers have stopped: what follows reads the store itself")


async def _play_hosts(
    place: Place,
    plan: Plan,
    screen: Screen,
    happened: Sequence[Happened],
    cluster: "_Cluster",
) -> None:
    job = HostJob(
        feed=cluster.address,
        leases=place.leases,
        observed=place.observed,
        logs=place.logs,
        page_size=page_size(len(happened)),
    )
    async with (
        open_container(place.leases) as container,
        Processes(job) as hosts,
        Producing.started(cluster.address, happened, plan.seconds) as producing,
    ):
        with screen.live() as show:
            fleet = Fleet(
                hosts,
                container,
                place,
                total=len(happened),
                show=show,
                check=lambda: _check(producing, cluster),
                brokers=cluster.division.in_words,
            )
            await start_hosts(hosts, plan, screen)
            await _let_one_join(fleet, producing, cluster)
            await replace_one(fleet, hosts, plan, screen)
            await _kill_one(fleet, producing, cluster, plan.seed)
            await finish(fleet, hosts, screen)


async def _let_one_join(fleet: Fleet, producing: Producing, cluster: "_Cluster") -> None:
    producing.allow(_BEFORE_JOINED)
    await fleet.until(lambda _: producing.share >= _JOIN_AT)
    await cluster.start(_NAMES[-1])
    await cluster.settled(fleet.look)
    producing.allow(_BEFORE_KILLED)


async def _kill_one(fleet: Fleet, producing: Producing, cluster: "_Cluster", seed: int) -> None:
    """Kill a broker while records are on their way to it."""
    at = max(_KILL_AT, producing.share + _ON_THEIR_WAY)
    producing.allow(1.0)
    await fleet.until(lambda _: producing.share >= at)
    await cluster.kill(Random(seed).choice(_NAMES))  # noqa: S311 - guards nothing
    await cluster.settled(fleet.look)
    await fleet.until(lambda _: producing.share == 1.0)
    cluster.say(
        f"all changes are stored; the longest wait for an answer was {producing.slowest:.1f} s"
    )


def _check(producing: Producing, cluster: "_Cluster") -> None:
    producing.check()
    cluster.check()


async def _no_look() -> None:
    pass


class _Cluster:
    """The brokers that run, and what they have made of the ranges."""

    def __init__(
        self, address: str, brokers: Processes, division: Division, screen: Screen
    ) -> None:
        self.address = address
        self.division = division
        self.say = screen.say
        self._brokers = brokers

    def check(self) -> None:
        """Raise ``ProcessEnded`` if a broker has ended by itself."""
        self._brokers.check()

    async def start(self, *names: str) -> None:
        for name in names:
            await self._brokers.start(name)
        self.say(f"started {' and '.join(names)}")

    async def kill(self, name: str) -> None:
        await self._brokers.kill(name)
        self.say(f"killed {name} (SIGKILL): what it had in hand, the producer sends again")

    async def settled(self, look: Callable[[], Awaitable[object]] = _no_look) -> None:
        """Wait for an era of the brokers that run, and ``look`` meanwhile."""
        began = time.monotonic()
        while not await self.division.is_among(self._brokers.running):
            self.check()
            if time.monotonic() - began > _PATIENCE:
                raise Standstill(
                    f"after {_PATIENCE:g} s there is no era of {self._brokers.running}; look "
                    f"at the logs (run with --keep)"
                )
            await look()
            await asyncio.sleep(_LOOK_INTERVAL)
        waited = time.monotonic() - began
        self.say(f"{await self.division.in_words()} ranges, after {waited:.1f} s")

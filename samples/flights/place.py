"""Where a run is, and what it has left there: the feed, the leases, what was observed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from changefeed.feeds.feed import RangeId
from changefeed.leases.addresses import open_container
from changefeed.leases.lease import Lease
from changefeed.log.directory.feed import EventLog
from samples.delays.tables import feed_of

from .data import Sample
from .observer import Figures, newest_figures


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
class AtRest:
    """The feed when nothing is written any more.

    ``leases`` come with the number of changes after their checkpoint; where there is none for a
    range that has changes, it is one without an owner and before all of them.
    """

    changes: Mapping[RangeId, int]
    leases: Sequence[tuple[Lease, int]]


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
    def feed(self) -> str:
        return feed_of(self.directory)

    @property
    def leases(self) -> str:
        return f"sqlite:{self.directory / 'leases.db'}"

    @property
    def observed(self) -> Path:
        return self.directory / "observed"

    @property
    def logs(self) -> Path:
        return self.directory / "logs"

    def read_plan(self) -> Plan:
        return msgspec.json.decode(self.plan.read_bytes(), type=Plan)

    def figures(self) -> Mapping[RangeId, Figures]:
        """Return what the observers kept of each range."""
        return {RangeId(x.name): newest_figures(x) for x in self.observed.iterdir()}

    async def at_rest(self) -> AtRest:
        async with EventLog.open(self.log) as feed, open_container(self.leases) as container:
            changes, leases = {}, []
            for x in await feed.ranges():
                beginning = await feed.start(x, "beginning")
                changes[x.id] = (await feed.lags({x: beginning}))[x.id]
                lease = await container.read(x.id)
                if lease is not None and lease.position is not None:
                    leases.append((lease, (await feed.lags({x: lease.position}))[x.id]))
                elif changes[x.id]:
                    leases.append((Lease(range=x), changes[x.id]))
        return AtRest(changes=changes, leases=leases)

"""Whether the ranges that a host reads get on, as far as it has seen itself."""

import asyncio
from collections.abc import Callable, Iterator, Mapping

from msgspec.structs import replace
from opentelemetry.metrics import Observation

from changefeed.feeds.feed import RangeId
from changefeed.leases.health import NOTHING_KNOWN, RangeHealth, WaitingKey


class RangeHealths:
    """The health of each range that is owned; its lease is written from it.

    ``wall`` gives seconds since 1970.
    """

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._ranges: dict[RangeId, RangeHealth] = {}
        self.on_trouble: Callable[[RangeId], None] = lambda _: None
        """Called whenever trouble begins or ends."""

    @property
    def ranges(self) -> Mapping[RangeId, RangeHealth]:
        return self._ranges

    def of(self, range_id: RangeId) -> RangeHealth:
        return self._ranges.get(range_id, NOTHING_KNOWN)

    def begin(self, range_id: RangeId, health: RangeHealth) -> None:
        """Go on from what the lease says: what failed for its former owner has not got on. It
        shows which keys wait when they are read.
        """
        self._ranges[range_id] = replace(health, waiting=0, oldest=None)

    def progressed(self, range_id: RangeId) -> None:
        self._become(range_id, self.of(range_id).progressed(self._wall()))

    def caught_up(self, range_id: RangeId) -> None:
        health = self.of(range_id)
        if health.has_problem:
            self._become(range_id, health.caught_up())

    def failed(self, range_id: RangeId, error: str) -> None:
        self._become(range_id, self.of(range_id).failed(self._wall(), error))

    def waits(self, range_id: RangeId, keys: int, oldest: WaitingKey | None) -> None:
        """So many keys of the range wait for another try, ``oldest`` for the longest."""
        health = self.of(range_id)
        if (keys, oldest) != (health.waiting, health.oldest):
            self._become(range_id, health.waits(keys, oldest))

    def wall_time_of(self, moment: float) -> float:
        """Return when a moment of the loop's clock is, in seconds since 1970."""
        return round(self._wall() + moment - asyncio.get_running_loop().time(), 1)

    def stuck(self, range_id: RangeId, *, seconds: float) -> float:
        """It has been waited for so long; return since when."""
        assert seconds >= 0, f"range {range_id!r} has been waited for {seconds} s"
        since = self._wall() - seconds
        self._become(range_id, self.of(range_id).stuck(since))
        return since

    def returned(self, range_id: RangeId) -> None:
        """It came back, or has acknowledged something."""
        health = self.of(range_id)
        if health.stuck_since is not None:
            self._become(range_id, health.returned())

    def forget(self, range_id: RangeId) -> None:
        """Stop watching a range that is no longer owned."""
        self._ranges.pop(range_id, None)

    def read_failing(self) -> list[Observation]:
        ranges = list(self._ranges.items())
        return [Observation(int(x.has_problem), {"range": name}) for name, x in ranges]

    def read_waiting(self) -> Iterator[Observation]:
        for name, health in list(self._ranges.items()):
            is_outage = health.oldest is not None and health.oldest.next_try is None
            why = "outage" if is_outage else "failed"
            for reason in ("failed", "outage"):
                keys = health.waiting if reason == why else 0
                yield Observation(keys, {"range": name, "reason": reason})

    def _become(self, range_id: RangeId, health: RangeHealth) -> None:
        before = self.of(range_id)
        self._ranges[range_id] = health
        if health.problems != before.problems:
            self.on_trouble(range_id)

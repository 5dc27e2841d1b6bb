"""A feed that refuses to read some range for a while: damaged, garbled, or not there.

Its owner must pause it, and go on with the others. What the feed does not know may be
known to it in a moment: that is waited for first.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from changefeed.feeds.errors import FeedError, RangeDamaged, RangeRefused, RangeUnknown
from changefeed.feeds.feed import FeedRange, Page, Position, RangeId
from changefeed.leases.lease import Lease
from changefeed.testing.proxies import show_methods

from .checkers import Call, Checker
from .probes import Probe
from .progress import Violation
from .scout import Scout

KINDS: Final[Mapping[str, Callable[[RangeId], FeedError]]] = {
    "damaged": lambda x: RangeDamaged(x, f"a block of {x} is damaged"),
    "garbled": lambda x: RangeRefused(x, f"the position in {x} is none of this feed"),
    "unknown": RangeUnknown,
}
_KNOWN_AFTER: Final = 45.0
"""Seconds in which a host has found out that a range is unknown for good."""


class Refusals:
    """What is refused now, and which owners have heard so."""

    def __init__(self) -> None:
        self._refused: dict[RangeId, Callable[[RangeId], FeedError]] = {}
        self._heard: dict[Call, float] = {}

    def refuse(self, range_id: RangeId, kind: str) -> None:
        self._refused[range_id] = KINDS[kind]

    def mend(self, range_id: RangeId) -> None:
        del self._refused[range_id]
        self._heard.clear()

    def through(self, reader: object, process: str, checker: Scout) -> object:
        """Return the feed as ``process`` reads it."""
        return _RefusingReader(reader, process, checker, self)

    def look(self, range_id: RangeId) -> None:
        """Raise what the feed says of a range that it refuses."""
        refused = self._refused.get(range_id)
        if refused is not None:
            raise refused(range_id)

    def heard(self, process: str, lease: Lease | None) -> None:
        """A process could not read the range of a lease on, which it may own."""
        if lease is not None and process.startswith(f"{lease.owner}/"):
            call = Call(process=process, range_id=lease.range_id, epoch=lease.epoch)
            self._heard.setdefault(call, asyncio.get_running_loop().time())

    def check_paused(self, checker: Checker, running: Collection[str]) -> None:
        """Raise ``Violation`` for a range that its owner has heard about, and keeps, though it
        is one of the processes that are ``running``.
        """
        now = asyncio.get_running_loop().time()
        for call, since in self._heard.items():
            lease = checker.leases.get(call.range_id)
            if lease is None or lease.epoch != call.epoch or lease.owner is None:
                continue
            kept = call.process in running and not lease.paused
            if kept and now - since > _KNOWN_AFTER and not checker.is_under_way(call):
                raise Violation(f"{call}: the feed refuses the range, and it is not paused")


class _RefusingReader:
    def __init__(self, reader: Any, process: str, checker: Scout, refusals: Refusals) -> None:
        self._reader = reader
        self._process = process
        self._checker = checker
        self._refusals = refusals
        show_methods(self, reader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        try:
            self._refusals.look(found.id)
        except FeedError:
            self._checker.hit(Probe.FEED_REFUSED)
            self._refusals.heard(self._process, self._checker.leases.get(found.id))
            raise
        page: Page = await self._reader.read(found, after, limit)
        return page

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        for found in at:
            self._refusals.look(found.id)
        lags: Mapping[RangeId, int] = await self._reader.lags(at)
        return lags

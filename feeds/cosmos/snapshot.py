"""All versions of a container behind a snapshot of it: the latest version of every item.

A reader of all versions begins now. One that begins with a snapshot is told what was there
before. Where all versions are, ``until``, is settled first, for each range. Then the latest
versions are read up to it, and then all versions behind it. So an item that was there is found
among the latest versions, or was changed meanwhile, and then comes by its versions. A delete
comes as one. What was written behind ``until`` is left out of the snapshot: it follows.

A position in a snapshot names both: ``"snapshot-40-7052"`` has read the latest versions up to
the LSN 40, of those up to 7052. The children of a range take it over as any other position.

Limits: the account must keep its versions for as long as the snapshot is read. Other processors
do not know such a position. What is read of a snapshot twice may lack items the second time,
which have come by their versions then.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

import msgspec

from changefeed.feeds.cosmos.feed import CosmosFeed
from changefeed.feeds.cosmos.positions import last_sequence, lsn_of, position
from changefeed.feeds.cosmos.requests import Requests
from changefeed.feeds.feed import (
    Change,
    FeedRange,
    Operation,
    Page,
    Position,
    RangeEnded,
    RangeId,
    StartAt,
)
from changefeed.feeds.raw_pages import RawPage, Rows

_sequence = attrgetter("sequence")
_FORM: Final = re.compile(r'"snapshot-([0-9]+)-([0-9]+)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A place in the snapshot of a range: the LSNs up to ``done`` of those up to ``until``."""

    done: int
    until: int

    @classmethod
    def at(cls, position: Position) -> "Snapshot | None":
        """Return the place of a position, if it is in a snapshot."""
        found = _FORM.fullmatch(position)
        return None if found is None else cls(done=int(found[1]), until=int(found[2]))

    @property
    def position(self) -> Position:
        return Position(f'"snapshot-{self.done}-{self.until}"')

    @property
    def is_over(self) -> bool:
        return self.done >= self.until

    @property
    def last_sequence(self) -> int:
        return last_sequence(self.until)

    def up_to(self, lsn: int) -> "Snapshot":
        return replace(self, done=min(lsn, self.until))


def snapshot_end(at: Position) -> Position | None:
    """Return where the snapshot ends that a position is in, if it is in one."""
    snapshot = Snapshot.at(at)
    if snapshot is None or snapshot.is_over:
        return None
    return snapshot.up_to(snapshot.until).position


def lsn_at(at: Position) -> int | None:
    """Return the LSN of a position, also of one in a snapshot: see ``lsn_of``."""
    snapshot = Snapshot.at(at)
    return lsn_of(at) if snapshot is None else snapshot.done


def beside(at: Position, other: Position) -> Position:
    """Return a position as it is in the snapshot that another is in, unless it lies behind."""
    snapshot, lsn = Snapshot.at(other), lsn_at(at)
    if snapshot is None or lsn is None or lsn > snapshot.until:
        return at
    return snapshot.up_to(lsn).position


class SnapshotChange(Change, frozen=True, kw_only=True, gc=False):
    """The latest version of an item, as a reader at the position ``read_at`` finds it."""

    read_at: Position

    @classmethod
    def of(cls, change: Change, read_at: Position) -> "SnapshotChange":
        fields = msgspec.structs.asdict(change) | {"operation": Operation.SNAPSHOT}
        return cls(**fields, read_at=read_at)


class VersionsFeed(CosmosFeed):
    """All versions of a container, which a reader may start with a snapshot."""

    def __init__(self, requests: Requests) -> None:
        super().__init__(requests, mode="all-versions")
        self._latest = CosmosFeed(requests, mode="latest-version")

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        if at != "snapshot":
            return await super().start(found, at)
        now = await super().start(found, "now")
        until = lsn_of(now)
        return Snapshot(done=0, until=until).position if until else now

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        page = await super().read(found, after, limit)
        if Snapshot.at(page.position) is None:
            return page
        return replace(page, changes=[SnapshotChange.of(x, after) for x in page.changes])

    async def fetch(self, found: FeedRange, after: Position, limit: int) -> RawPage:
        snapshot = Snapshot.at(after)
        if snapshot is None:
            return await super().fetch(found, after, limit)
        with _ending_at(after):
            if not snapshot.is_over:
                page = await self._latest.fetch(found, position(snapshot.done), limit)
                lsn = lsn_of(page.position)
                assert lsn is not None, f"{page.position} is none, and the beginning was one"
                at = snapshot.up_to(lsn).position
                if lsn < snapshot.until or self._has_any(found, page, at):
                    return replace(page, position=at)
            return await super().fetch(found, position(snapshot.until), limit)

    def _has_any(self, found: FeedRange, page: RawPage, at: Position) -> bool:
        return page.body is not None and bool(self._decoded(found, page.body, at))

    def _decoded(self, found: FeedRange, body: bytes, behind: Position) -> Sequence[Change]:
        snapshot = Snapshot.at(behind)
        if snapshot is None:
            return super()._decoded(found, body, behind)
        changes = self._latest._decoded(found, body, position(snapshot.done))  # noqa: SLF001 - its own kind
        return changes[: bisect_right(changes, snapshot.last_sequence, key=_sequence)]

    def rows(self, range_id: RangeId, page: RawPage) -> Rows:
        snapshot = Snapshot.at(page.position)
        if snapshot is None:
            return super().rows(range_id, page)
        rows = self._latest.rows(range_id, page).up_to(snapshot.last_sequence)
        return replace(rows, operations=[Operation.SNAPSHOT] * len(rows))

    def position_after(self, change: Change) -> Position:
        at = super().position_after(change)
        return beside(at, change.read_at) if isinstance(change, SnapshotChange) else at

    async def _lag(self, found: FeedRange, after: Position) -> int:
        snapshot = Snapshot.at(after)
        if snapshot is None:
            return await super()._lag(found, after)
        if snapshot.is_over:
            return await super()._lag(found, position(snapshot.until))
        return await self._latest._lag(found, position(snapshot.done))  # noqa: SLF001 - its own kind


@contextmanager
def _ending_at(after: Position) -> Iterator[None]:
    """Have a range that ends in a snapshot end where its reader is."""
    try:
        yield
    except RangeEnded as ended:
        children = tuple(replace(x, start=after) for x in ended.children)
        raise RangeEnded(ended.range_id, children) from None

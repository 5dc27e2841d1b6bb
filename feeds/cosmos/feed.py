"""The change feed of a Cosmos DB container, one range of ours for each physical range.

See ``positions`` for what a position is, ``topology`` for what becomes of ranges that are
split or merged, ``changes`` for what the two modes report, and ``requests`` for why the
client is watched so closely.

A container that was deleted and recreated has other changes under the same positions. While
a feed is open this shows in the container's resource id. Positions do not carry it (they are
those of other change feed processors), so after a restart only a position beyond the end of
its range gives the new container away: if a range stays shorter than its lease says, for
longer than any replica lags, it is refused.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from changefeed.feeds.cosmos.address import Mode
from changefeed.feeds.cosmos.answers import NOT_MODIFIED, Answer
from changefeed.feeds.cosmos.changes import Changes
from changefeed.feeds.cosmos.hashes import EVEN_HASHES, even_parts
from changefeed.feeds.cosmos.keys import key_values
from changefeed.feeds.cosmos.positions import (
    BEGINNING,
    check_position,
    client_range,
    client_token,
    lsn_in,
    lsn_of,
    position,
    position_after,
    session_lsn,
)
from changefeed.feeds.cosmos.repeating import POSITION
from changefeed.feeds.cosmos.requests import Requests
from changefeed.feeds.cosmos.topology import Place, part_between
from changefeed.feeds.errors import (
    FeedError,
    FeedRefused,
    FeedUnavailable,
    RangeRefused,
    RangeUnknown,
)
from changefeed.feeds.feed import (
    Change,
    Child,
    Feed,
    FeedRange,
    Page,
    Position,
    RangeEnded,
    RangeId,
    StartAt,
)
from changefeed.feeds.raw_pages import RawPage, Rows
from changefeed.feeds.timestamps import start_us
from changefeed.runtime.calls import for_each

_CLIENT_MODES: Final[dict[Mode, str]] = {
    "latest-version": "LatestVersion",
    "all-versions": "AllVersionsAndDeletes",
}
_STARTS: Final[Mapping[str, Mapping[str, str]]] = {"Beginning": {}, "Now": {POSITION: "*"}}
"""What names the first page of a range in the header of a request, where anything does."""
_AT_ONCE: Final = 16
_MOVES: Final = 3  # how often in a row to follow a range that was moved meanwhile
_REPLICA_LAG: Final = 60.0  # seconds for which a replica may be behind a position


class CosmosFeed(Feed):
    """Made by ``opening``. Keeps the contract of ``Feed``, with these particulars.

    Ranges that are gone are not listed, and end at once: their changes are read through
    those that hold their keys now. In ``latest-version`` mode a time to start from is
    taken down to its whole second. In ``all-versions`` mode a range starts from now.
    Lag is in LSNs, which is changes where each was written by itself.
    """

    children_inherit_positions = True

    def __init__(self, requests: Requests, *, mode: Mode) -> None:
        self._requests = requests
        self._mode: Mode = mode
        self._changes = Changes(
            requests.key_paths,
            all_versions=mode == "all-versions",
            check=requests.check_same_container,
        )
        self._behind: dict[RangeId, tuple[float, Position]] = {}
        self._clock = asyncio.get_running_loop().time

    @property
    def request_units(self) -> float:
        return self._requests.request_units

    @property
    def identity(self) -> str:
        """The resource id of the container, of which the next one of its name has another; and
        the mode, if it is not that of the latest versions.
        """
        rid = self._requests.rid
        return rid if self._mode == "latest-version" else f"{rid}?mode={self._mode}"

    def split(self, found: FeedRange, into: int) -> Sequence[FeedRange]:
        version = self._requests.hash_version
        if version != EVEN_HASHES:
            raise FeedRefused(
                f"range {found.id!r} cannot be split: its container has version {version} of "
                f"partition keys, whose hashes are not cut here. A "
                f"container made today has version 2"
            )
        return [part_between(found, low, high) for low, high in even_parts(found, into)]

    def merge(self, parts: Sequence[FeedRange]) -> FeedRange:
        return self._requests.topology.joined(parts)

    def sub_range(self, found: FeedRange, low: str, high: str) -> FeedRange:
        return part_between(found, low, high)

    async def hash_of(self, key: str) -> str | None:
        """Return the hash of a key of changes, as the bounds of ranges have it; ``None`` where
        it may have several.

        0 and -0 have one text. A delete that does not say its key has the text of no key.
        """
        try:
            values = key_values(key, len(self._requests.key_paths))
        except ValueError:
            return None
        return None if 0 in values or {} in values else await self._requests.hash_of(values)

    async def ranges(self) -> Sequence[FeedRange]:
        await self._requests.look()
        return self._requests.topology.physical

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        await self._find(found)
        if self._mode == "all-versions" and at != "now":
            raise FeedRefused(
                "a feed of all versions and deletes keeps no old changes to start from: start "
                "from now, or with a snapshot, or read the latest versions "
                "(?mode=latest-version)"
            )
        instant = start_us(at)
        if at == "beginning" or (instant is not None and instant <= 0):
            return BEGINNING
        since: object = "Now"
        if instant is not None:
            since = datetime.fromtimestamp(instant // 1_000_000, UTC)
        asked = await self._ask(found, since=since, limit=1)
        if asked is None:
            raise RangeUnknown(found.id)  # its children start afresh
        _, answer = asked
        if answer.status == NOT_MODIFIED:
            return Position(answer.etag)
        return position(self._first_lsn(found, answer) - 1)

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        raw = await self.fetch(found, after, limit)
        changes = () if raw.body is None else self._decoded(found, raw.body, raw.position)
        return Page(changes=changes, position=raw.position)

    def _decoded(self, found: FeedRange, body: bytes, behind: Position) -> Sequence[Change]:
        named = self._requests.topology.name_of_changes(found)
        return self._changes.decode(found.id, body, end=lsn_of(behind), named=named)

    async def fetch(self, found: FeedRange, after: Position, limit: int) -> RawPage:
        assert limit > 0, "a page holds at least one change"
        check_position(found.id, after)
        asked = await self._ask(found, after=after, limit=limit)
        if asked is None:
            ended_in = self._requests.topology.find(found)
            assert not isinstance(ended_in, Place), "it was looked for just now"
            raise RangeEnded(found.id, tuple(Child(range=x, start=after) for x in ended_in))
        place, answer = asked
        if answer.status == NOT_MODIFIED:
            return RawPage(position=self._stands(place, found.id, after, answer))
        self._behind.pop(found.id, None)
        return RawPage(position=Position(answer.etag), body=answer.body)

    def rows(self, range_id: RangeId, page: RawPage) -> Rows:
        end = lsn_of(page.position)
        return self._changes.cut(range_id, page.body or b"", end=end)

    def position_after(self, change: Change) -> Position:
        return position_after(change.sequence)

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        """Ask for the first change of each, a few at a time. Raise where none has an answer."""
        lags: dict[RangeId, int] = {}
        failed: list[FeedError] = []

        async def count(found: FeedRange) -> None:
            try:
                lags[found.id] = await self._lag(found, at[found])
            except FeedError as error:
                failed.append(error)

        await for_each(at, count, at_once=_AT_ONCE)
        unavailable = [x for x in failed if isinstance(x, FeedUnavailable)]
        if unavailable and not lags:
            raise unavailable[0]
        return lags

    async def _lag(self, found: FeedRange, after: Position) -> int:
        check_position(found.id, after)
        asked = await self._ask(found, after=after, limit=1)
        if asked is None:
            return 0  # what is left of it counts as its children'
        _, answer = asked
        if answer.status == NOT_MODIFIED:
            return 0
        first = self._first_lsn(found, answer)
        # From the first change that is there to the newest, if that is known.
        return max(1, (session_lsn(answer.session) or first) - first + 1)

    def _first_lsn(self, found: FeedRange, answer: Answer) -> int:
        behind = Position(answer.etag)
        changes = self._decoded(found, answer.body, behind)
        return lsn_in(changes[0].sequence) if changes else lsn_of(behind) or 0

    async def _ask(
        self,
        found: FeedRange,
        *,
        limit: int,
        after: Position | None = None,
        since: object = "Beginning",
    ) -> tuple[Place, Answer] | None:
        """Ask for changes behind a position or since a time, where they are by now.

        Return ``None`` where a position can no longer be asked for under this id.
        """

        def refused(text: str) -> FeedRefused:
            at = f"range {found.id!r} cannot be read from {after!r}: {text}"
            return FeedRefused(text) if after is None else RangeRefused(found.id, at)

        behind = None if after == BEGINNING and self._mode == "latest-version" else after
        header = _STARTS.get(str(since)) if behind is None else {POSITION: str(behind)}
        for _ in range(_MOVES):
            place = await self._find(found)
            if not isinstance(place, Place):
                # What takes over is the latest, and a part may be whole again.
                await self._requests.look()
                place = self._requests.topology.find(found)
            if not isinstance(place, Place):
                return None
            query = partial(self._query, place, behind, since)
            answer = await self._requests.changes(
                place, header, limit, query, self._mode, refused=refused
            )
            if answer is not None:
                return place, answer
            await self._requests.look()
        raise FeedUnavailable(f"range {found.id!r} keeps moving; ask again")

    def _query(self, at: Place, after: Position | None, since: object) -> dict[str, Any]:
        mode = _CLIENT_MODES[self._mode]
        if after is None:
            feed_range = client_range(at.low, at.high)
            return {"feed_range": feed_range, "start_time": since, "mode": mode}
        token = client_token(
            after, container_rid=self._requests.rid, mode=mode, low=at.low, high=at.high
        )
        return {"continuation": token}

    async def _find(self, found: FeedRange) -> Place | tuple[FeedRange, ...]:
        try:
            return self._requests.topology.find(found)
        except RangeUnknown:
            await self._requests.look()  # it may be new
        return self._requests.topology.find(found)

    def _stands(
        self, place: Place, range_id: RangeId, after: Position, answer: Answer
    ) -> Position:
        """Return the position of a reader after an answer without changes: never an older one.

        A replica may be behind for a while. What stays behind has begun its LSNs again, as
        a merge may: it is read on from where it was first seen. A range that was
        there from the start cannot have.
        """
        mine, newest = lsn_of(after), session_lsn(answer.session)
        if mine is None or newest is None or mine <= newest:
            self._behind.pop(range_id, None)
            return Position(answer.etag)
        since, first = self._behind.setdefault(range_id, (self._clock(), position(newest)))
        if self._clock() - since < _REPLICA_LAG:
            return after
        if not place.original:
            self._behind.pop(range_id)
            return first
        raise RangeRefused(
            range_id,
            f"the position {after!r} lies beyond the end of range {range_id!r}, which is "
            f"at {newest}: the container was deleted and recreated, or restored from an "
            f"older copy, or the leases are those of another feed. Reset the leases of "
            f"this feed",
        )

"""``shelf:FILE``: a journal of JSON lines, replayed into a feed in memory.

The first line is ``{"ranges": 3}``; each further one appends a change, splits a range or
merges two: ``{"append": {"key": …, "body": …}}``, ``{"split": "r0"}``,
``{"merge": ["r3", "r4"]}``. Whoever reads it comes to the same ranges and positions.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from changefeed import (
    Change,
    FeedRange,
    MemoryFeed,
    Operation,
    Page,
    Position,
    RangeId,
    StartAt,
)
from changefeed.backends import (
    Address,
    Diagnostic,
    Feed,
    FeedBackend,
    FeedRefused,
    FeedUnavailable,
    OpenOptions,
    PositionTraits,
    fine,
    warning,
)
from changefeed_shelf.settings import ShelfSettings


class ShelfFeed(Feed):
    def __init__(self, file: Path, feed: MemoryFeed, offset: int, max_page: int) -> None:
        self._file = file
        self._feed = feed
        self._offset = offset
        self._max_page = max_page
        self._reading = asyncio.Lock()

    @property
    def identity(self) -> str:
        return f"shelf {self._file.absolute()}"

    async def ranges(self) -> Sequence[FeedRange]:
        await self._catch_up()
        return await self._feed.ranges()

    async def start(self, found: FeedRange, at: StartAt) -> Position:
        await self._catch_up()
        return await self._feed.start(found, at)

    async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
        await self._catch_up()
        return await self._feed.read(found, after, min(limit, self._max_page))

    def position_after(self, change: Change) -> Position:
        return self._feed.position_after(change)

    async def lags(self, at: Mapping[FeedRange, Position]) -> Mapping[RangeId, int]:
        await self._catch_up()
        return await self._feed.lags(at)

    async def _catch_up(self) -> None:
        async with self._reading:
            try:
                lines, self._offset = await asyncio.to_thread(_lines, self._file, self._offset)
            except OSError as error:
                raise FeedUnavailable(f"{self._file}: {error.strerror}") from error
            for line in lines:
                _replay(self._feed, line)


def _lines(file: Path, offset: int) -> tuple[Sequence[bytes], int]:
    """Return the whole lines from an offset on, and the offset after them."""
    with file.open("rb") as opened:
        opened.seek(offset)
        whole, newline, _ = opened.read().rpartition(b"\n")
    return whole.split(b"\n") if newline else [], offset + len(whole) + len(newline)


class _Append(msgspec.Struct):
    key: str
    body: str
    id: str | None = None
    operation: Operation = Operation.INSERT
    previous: str | None = None
    committed_us: int | None = None


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One line of the journal; one of its fields is set."""

    append: _Append | None = None
    split: RangeId | None = None
    merge: tuple[RangeId, RangeId] | None = None


def _replay(feed: MemoryFeed, line: bytes) -> None:
    try:
        entry = msgspec.json.decode(line, type=_Entry)
    except msgspec.DecodeError as error:
        raise FeedRefused(f"the journal has a line of no known kind: {error}") from error
    if (change := entry.append) is not None:
        feed.append(
            change.key,
            change.body.encode(),
            id=change.id,
            operation=change.operation,
            previous=None if change.previous is None else change.previous.encode(),
            committed_us=change.committed_us,
        )
    if entry.split is not None:
        feed.split_range(entry.split)
    if entry.merge is not None:
        feed.merge_ranges(*entry.merge)


@asynccontextmanager
async def _open(address: Address, options: OpenOptions) -> AsyncIterator[ShelfFeed]:
    settings: ShelfSettings = options.settings
    file = Path(address.place)
    try:
        lines, _ = await asyncio.to_thread(_lines, file, 0)
    except OSError as error:
        raise FeedRefused(f"{file}: {error.strerror}; write its first line") from error
    match msgspec.json.decode(lines[0]) if lines else None:
        case {"ranges": int(ranges)}:
            offset = len(lines[0]) + 1
            yield ShelfFeed(file, MemoryFeed(ranges), offset, settings.max_page)
        case _:
            raise FeedRefused(f"{file} does not begin with the number of its ranges")


async def _check(address: Address, _: OpenOptions) -> AsyncIterator[Diagnostic]:
    content = await asyncio.to_thread(Path(address.place).read_bytes)
    if content.endswith(b"\n"):
        yield fine("journal", f"{len(content.splitlines())} entries")
    else:
        yield warning(
            "journal",
            "the last line is not finished, and is not read",
            "look whether its producer was killed",
        )


def _positions() -> PositionTraits:
    return PositionTraits(order=int, position=lambda x: Position(str(x)))


BACKEND = FeedBackend(
    name="shelf",
    place="FILE",
    open=_open,
    check=_check,
    settings=ShelfSettings,
    absolute=lambda place: str(Path(place).absolute()),
    positions=_positions,
)

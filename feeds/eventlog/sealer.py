"""Sealing: what blocks hold becomes a segment, and the blocks are given up.

The file is written under another name, synced, read back and renamed; then one transaction
of the records names it and deletes the blocks. That is the only border: before it the blocks
count, and after it the segment. A process that is killed leaves a file that nothing names,
which the next one removes. The caller holds the writer's lock, and readers go on meanwhile.

A block that is damaged is not sealed, and nothing behind it.
"""

import asyncio
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, Protocol

from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeDamaged
from changefeed.feeds.eventlog.block_format import joined
from changefeed.feeds.eventlog.catalog import Catalog, check_records
from changefeed.feeds.eventlog.damage import damaged
from changefeed.feeds.eventlog.database import advised, opened, typed
from changefeed.feeds.eventlog.schema import RECORDS
from changefeed.feeds.eventlog.sealing import Block, SealPolicy, Unsealed, goal, pieces
from changefeed.feeds.eventlog.segment_rows import (
    SEGMENTS,
    Segment,
    SegmentDamaged,
    segment_path,
    segments_of,
)
from changefeed.feeds.eventlog.stored_blocks import BLOCK, StoredBlock, whole_blocks
from changefeed.feeds.feed import MIN_TIME_US, RangeId
from changefeed.runtime.logs import get_logger

if TYPE_CHECKING:
    from changefeed.feeds.eventlog.segments import Groups

_log = get_logger(__name__)

_GROUP_BYTES: Final = 8 * 1024 * 1024
_GROUP_RECORDS: Final = 64 * 1024
"""A row group takes no more blocks once it has either."""

_STATES: Final = "SELECT partition, last, stored, first, size, closed FROM partitions"
_SEALED: Final = "SELECT partition, max(last), max(stored) FROM segments GROUP BY partition"
_STORED: Final = "SELECT coalesce(max(stored), 0) FROM segments WHERE partition = ?"
_AGED: Final = """
SELECT last FROM blocks WHERE partition = ? AND latest_us < ?
ORDER BY latest_us DESC, first DESC LIMIT 1
"""
_PLACES: Final = """
SELECT first, last, stored FROM blocks WHERE partition = ? AND first > ? ORDER BY first
"""
_BLOCKS: Final = f"""
SELECT {BLOCK} FROM blocks
WHERE partition = ? AND first BETWEEN ? AND ? ORDER BY first
"""  # noqa: S608 - names of our own columns


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A segment that was made: ``stored`` bytes of blocks became ``size`` bytes of a file."""

    range_id: RangeId
    first: int
    last: int
    stored: int
    size: int

    def __post_init__(self) -> None:
        assert self.first <= self.last, f"a segment without changes: {self}"


class Border(Protocol):
    """What a writer does in one transaction of its own."""

    async def give_up_blocks(self, segment: Segment, reached: Callable[[str], None]) -> bool:
        """Name a segment in the place of its blocks.

        Return whether that was done: not if its last block has grown since it was read.
        """
        ...


class Sealer:
    """Seals what of a log is to be sealed. ``reached`` is called after each step."""

    def __init__(
        self,
        catalog: Catalog,
        broker: int,
        border: Border,
        reached: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._catalog = catalog
        self._broker = broker
        self._path = catalog.folder(broker) / RECORDS
        self._border = border
        self._reached = reached
        self._stopping = False

    def stop(self) -> None:
        """End after the segment that is being made."""
        self._stopping = True

    async def seal(self, policy: SealPolicy, now: float) -> Sequence[Sealed]:
        """Seal what the policy names at a time, in seconds since 1970; return what was.

        Raise ``FeedRefused`` without pyarrow, ``FeedUnavailable`` if the disk does not take
        it, and ``RangeDamaged``, once all other ranges are done, for a damaged block.
        """
        segments = segments_module()
        found = await asyncio.to_thread(self._found, policy, int(now * 1_000_000))
        await asyncio.to_thread(self._sweep)
        made: list[Sealed] = []
        damage: RangeDamaged | None = None
        for one, up_to in found:
            try:
                made += await self._seal_range(segments, one, up_to)
            except RangeDamaged as error:
                _log.warning("segment.not_made", range=error.range_id, reason=str(error))
                damage = error
            if self._stopping:
                break
        if damage is not None and not made:
            raise damage
        return made

    async def _seal_range(
        self, segments: ModuleType, found: Unsealed, up_to: int
    ) -> Sequence[Sealed]:
        made: list[Sealed] = []
        for first, last in await asyncio.to_thread(self._pieces, found, up_to):
            if self._stopping:
                break
            segment, size = await asyncio.to_thread(
                self._write, segments, found.partition, first, last
            )
            assert (segment.partition, segment.file.first) == (found.partition, first), (
                f"a segment of partition {found.partition} from {first} on is {segment}"
            )
            if not await self._border.give_up_blocks(segment, self._reached):
                break  # its last block has grown: the file is swept, and made again later
            self._reached("the blocks are gone")
            range_id = self._catalog.by_number[found.partition].id
            file = segment.file
            made.append(
                Sealed(
                    range_id=range_id,
                    first=file.first,
                    last=file.last,
                    stored=size,
                    size=file.size,
                )
            )
        return made

    def _found(self, policy: SealPolicy, now_us: int) -> Sequence[tuple[Unsealed, int]]:
        """Return the ranges that have something to seal, and up to which sequence."""
        with opened(self._path, "ro") as records:
            check_records(records, self._catalog, self._broker)
            lasts = typed(records.execute(_SEALED), tuple[int, int, int])
            sealed = {number: (last, stored) for number, last, stored in lasts}
            found = []
            for state in typed(records.execute(_STATES), tuple[int, int, int, int, int, int]):
                number, last, stored, first, size, closed = state
                if number not in self._catalog.by_number:
                    continue  # it is not open yet, or never was
                before, given_up = sealed.get(number, (0, 0))
                aged = 0
                if policy.older_than is not None:
                    cutoff = max(MIN_TIME_US, now_us - int(policy.older_than * 1_000_000))
                    rows = typed(records.execute(_AGED, (number, cutoff)), tuple[int])
                    aged = rows[0][0] if rows else 0
                one = Unsealed(
                    partition=number,
                    sealed=before,
                    last=last,
                    full=first - 1 if size else last,
                    stored=stored - given_up,
                    closed=bool(closed),
                    aged=aged,
                )
                if (up_to := goal(policy, one)) > before:
                    found.append((one, up_to))
            return found

    def _pieces(self, found: Unsealed, up_to: int) -> Sequence[tuple[int, int]]:
        range_id = self._catalog.by_number[found.partition].id
        with opened(self._path, "ro") as records, advised(self._path, range_id):
            places = records.execute(_PLACES, (found.partition, found.sealed))
            rows = typed(places, tuple[int, int, int])
            ((before,),) = typed(records.execute(_STORED, (found.partition,)), tuple[int])
        blocks = (Block(first=first, last=last, stored=stored) for first, last, stored in rows)
        return list(pieces(blocks, before, up_to))

    def _write(
        self, segments: ModuleType, partition: int, first: int, last: int
    ) -> tuple[Segment, int]:
        """Write the file of a segment; return it, and the bytes of the blocks it holds."""
        range_id = self._catalog.by_number[partition].id
        folder = self._catalog.home / SEGMENTS / range_id
        aside = folder / f"{first}-{last}.parquet.new"
        stored: list[int] = []

        def groups() -> "Groups":
            with closing(self._gathered(partition, first, last)) as gathered:
                for blocks in gathered:
                    before = blocks[0].stored - sum(map(len, blocks[0].columns))
                    stored.extend((before, blocks[-1].stored))
                    yield segments.Records(
                        first=blocks[0].first,
                        latest_us=blocks[-1].latest_us,
                        layout=joined(x.columns for x in blocks),
                    )

        with writing(aside):
            folder.mkdir(parents=True, exist_ok=True)
            with aside.open("w+b") as file:
                self._reached("the file is begun")
                try:
                    found = segments.write_segment(file, range_id, groups)
                except SegmentDamaged as error:  # or the disk has not kept it
                    raise damaged(self._catalog, range_id, first, last) from error
                os.fsync(file.fileno())
            self._reached("the file is written")
            segment = Segment(partition=partition, stored=stored[-1], file=found)
            aside.rename(segment_path(self._catalog.home, range_id, found))
            for place in (folder, folder.parent, folder.parent.parent):
                sync_folder(place)
        self._reached("the file has its name")
        return segment, stored[-1] - stored[0]

    def _gathered(
        self, partition: int, first: int, last: int
    ) -> Generator[Sequence[StoredBlock], None, None]:
        """Yield blocks that follow each other, as many as make a row group.

        The last may have grown since it was looked for: it is taken as it is now.
        """
        found = self._catalog.by_number[partition]
        gathered: list[StoredBlock] = []
        size, wanted = 0, first
        with opened(self._path, "ro") as records, advised(self._path, found.id):
            check_records(records, self._catalog, self._broker)
            rows = records.execute(_BLOCKS, (partition, first, last))
            for block in whole_blocks(rows, self._catalog, found, first):
                gathered.append(block)
                size += sum(map(len, block.columns))
                wanted = block.last + 1
                count = wanted - gathered[0].first
                if size >= _GROUP_BYTES or count >= _GROUP_RECORDS or block.last >= last:
                    yield gathered
                    gathered, size = [], 0
        if wanted <= last:
            raise damaged(self._catalog, found.id, wanted, last)

    def _sweep(self) -> None:
        """Remove the files that killed processes have left: those that no segment names."""
        named: set[Path] = set()
        with opened(self._path, "ro") as records:
            try:
                found = list(segments_of(records))
            except SegmentDamaged as error:
                _log.warning(
                    "segments.not_swept", log=str(self._catalog.home), reason=str(error)
                )
                return  # it may name any of them
        for one in found:
            range_id = self._catalog.by_number[one.partition].id
            named.add(segment_path(self._catalog.home, range_id, one.file))
        ranges = {x.id for x in self._catalog.partitions if x.broker == self._broker}
        for path in (self._catalog.home / SEGMENTS).glob("*/*.parquet*"):
            if path.parent.name in ranges and path not in named:
                with writing(path):
                    path.unlink(missing_ok=True)


def segments_module() -> ModuleType:
    """Import what writes segments. Raise ``FeedRefused`` without pyarrow."""
    try:
        from changefeed.feeds.eventlog import segments  # noqa: PLC0415 - it needs pyarrow
    except ImportError as error:
        raise FeedRefused(
            f"segments are Parquet, and pyarrow is not installed: pip install "
            f"'changefeed-host[segments]' ({error})"
        ) from error
    return segments


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn what a disk says into errors of feeds."""
    try:
        yield
    except OSError as error:
        raise FeedUnavailable(
            f"{path} cannot be written: {error}. Nothing is lost, it is in the log's blocks: "
            f"make room, then seal again"
        ) from error


def sync_folder(path: Path) -> None:
    """Have the names in a folder outlive a loss of power."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)

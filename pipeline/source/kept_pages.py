"""Pages that a planner has read to count their changes, kept for the tasks of that batch.

The end of a limited batch is found by reading up to it. What was read lies in a file for
each range, in a folder that is the planner's own, until the next batch is counted; slices name
the file. A task on the same machine reads it and asks the feed for nothing. One that finds
no such file, as on another machine, or when a batch is repeated later, asks the feed: the
changes are those between the same two positions.

At the most ``_MOST`` bytes are kept, and nothing on a disk that is full. A planner that was
killed leaves its folder behind, which the next one on this machine removes.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from changefeed.feeds.feed import Position, RangeId
from changefeed.feeds.raw_pages import RawPage
from changefeed.pipeline.source.position_order import PositionOrder
from changefeed.pipeline.source.reader import Slice
from changefeed.runtime.logs import get_logger

_log = get_logger()

_MOST: Final = 1 << 30
_PREFIX: Final = "changefeed-pages-"
_SIZE: Final = 8  # bytes before each page, with its length

_pack = msgspec.msgpack.encode


@dataclass(slots=True, kw_only=True)
class _Kept:
    """The file of a range, and between which two positions its pages lie."""

    path: Path
    begin: Position
    end: Position
    size: int = 0


class KeptPages:
    """The pages of the batch that is planned, by range. One thread uses it."""

    def __init__(self, order_of_positions: PositionOrder, *, most: int = _MOST) -> None:
        self._order = order_of_positions.order
        self._most = most
        self._home: Path | None = None
        self._kept: dict[RangeId, _Kept] = {}
        self._files = 0

    def forget(self, name: RangeId) -> None:
        """Remove what is kept of a range: its last batch is done."""
        kept = self._kept.pop(name, None)
        if kept is not None:
            kept.path.unlink(missing_ok=True)

    def keep(self, name: RangeId, after: Position, page: RawPage) -> None:
        """Keep a page that follows, or begins within, the ones before it of this range."""
        if page.body is None:
            return
        data = _pack((page.position, page.body))
        try:
            kept = self._kept.get(name) or self._begin(name, after)
            size = sum(x.size for x in self._kept.values()) + len(data)
            if size > self._most or self._order(after) > self._order(kept.end):
                return  # a hole: what lies behind it is read again
            with kept.path.open("ab") as file:
                file.write(len(data).to_bytes(_SIZE, "big"))
                file.write(data)
        except OSError as error:
            _log.debug("pages.not_kept", range=name, reason=str(error))
            self.forget(name)
            return
        kept.end, kept.size = page.position, kept.size + len(data)

    def file_of(self, piece: Slice) -> str:
        """Return the file that has all pages of a slice; empty, if there is none."""
        kept = self._kept.get(piece.range_id)
        if (
            kept is None
            or self._order(piece.start) < self._order(kept.begin)
            or self._order(piece.end) > self._order(kept.end)
        ):
            return ""
        return str(kept.path)

    def close(self) -> None:
        self._kept.clear()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
        self._home = None

    def _begin(self, name: RangeId, after: Position) -> _Kept:
        if self._home is None:
            _sweep()
            self._home = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self._files += 1
        path = self._home / str(self._files)  # never one that a task may still have open
        self._kept[name] = _Kept(path=path, begin=after, end=after)
        return self._kept[name]


def kept_pages(path: str) -> Iterator[RawPage]:
    """Yield the pages in a file. Raise ``OSError`` if it is not there, or was cut."""
    with Path(path).open("rb") as file:
        while size := int.from_bytes(file.read(_SIZE), "big"):
            data = file.read(size)
            if len(data) < size:
                raise OSError(f"{path} was cut")
            at, body = msgspec.msgpack.decode(data, type=tuple[str, bytes])
            yield RawPage(position=Position(at), body=body)


def _sweep() -> None:
    """Remove the folders of planners of this user that were killed."""
    for x in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        number = x.name.removeprefix(_PREFIX).partition("-")[0]
        with suppress(OSError):
            if number.isdigit() and not _lives(int(number)) and x.stat().st_uid == os.getuid():
                shutil.rmtree(x, ignore_errors=True)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

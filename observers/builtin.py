"""Observers for common needs, and as examples of how to write one.

They are written as users write theirs and go through ``changefeed.observers.adapters``;
the plain ones run in a thread of their own.
"""

import asyncio
import errno
import fcntl
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

import msgspec

from changefeed.feeds.feed import Change, Operation, RangeId
from changefeed.observers.observer import CloseReason, Context
from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import get_logger
from changefeed.runtime.private_file import PRIVATE_FILE

_log = get_logger(__name__)


class LogObserver:
    """Writes a line to the log for each batch or, with ``each_change``, for each change.

    Bodies are left out: they may be long, and not everyone may read them.
    """

    def __init__(self, *, each_change: bool = False) -> None:
        self._each_change = each_change

    def process(self, context: Context, changes: Sequence[Change]) -> None:
        if self._each_change:
            for change in changes:
                _log.info("change", **_in_words(change))
            return
        _log.info(
            "changes",
            range=context.range.id,
            first=changes[0].sequence,
            last=changes[-1].sequence,
            **_by_operation(Counter(x.operation for x in changes)),
        )


class CountObserver:
    """Counts the changes of its range and logs the totals: at close, and on the way.

    On the way means with the first batch that ends ``every`` seconds or more after the
    last line. The totals are since ``open``: after a restart they begin at zero.
    """

    def __init__(self, *, every: float = 60.0) -> None:
        self._every = every
        self._counts: Counter[Operation] = Counter()
        self._said_at = 0.0

    @property
    def counts(self) -> Counter[Operation]:
        return self._counts.copy()

    async def open(self, _context: Context) -> None:
        self._said_at = asyncio.get_running_loop().time()

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        self._counts.update(x.operation for x in changes)
        now = asyncio.get_running_loop().time()
        if now - self._said_at >= self._every:
            self._said_at = now
            self._say("counted so far", context)

    async def close(self, context: Context, reason: CloseReason) -> None:
        self._say("counted", context, closed_because=reason.value)

    def _say(self, event: str, context: Context, **more: str) -> None:
        _log.info(event, range=context.range.id, **_by_operation(self._counts), **more)


class JsonLinesObserver:
    """Appends each change to a file as one line of JSON.

    ``path`` may name ``{range}``, and then each range has its own file; folders are made.
    The body is in the line as the feed gave it, not parsed; the line is JSON if
    the body is. A delete without an image has the body ``null``.

    A batch is written by one locked append, which first cuts the half line that a killed
    writer left behind. So a former owner and the next one, or several ranges, may write
    to the same file. A batch that is not wholly written (the disk is full) is cut off
    again. With ``fsync`` it is on the disk, not only with the system, before it counts as
    done. A batch that was delivered twice is there twice: a reader who minds drops
    what has a (range, sequence) he has seen.
    """

    def __init__(self, path: str = "changes-{range}.jsonl", *, fsync: bool = False) -> None:
        rest = path.replace("{range}", "")
        if "{" in rest or "}" in rest:
            raise UserError(f"path {path!r}: the only thing in braces can be {{range}}")
        self._path = path
        self._fsync = fsync

    def open(self, context: Context) -> None:
        path = self._file(context)
        with _explained(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            _append(path, b"", fsync=self._fsync)
            if self._fsync:
                _sync_folder(path.parent)

    def process(self, context: Context, changes: Sequence[Change]) -> None:
        path = self._file(context)
        with _explained(path):
            _append(path, _lines(changes), fsync=self._fsync)

    def _file(self, context: Context) -> Path:
        return Path(self._path.replace("{range}", _file_name(context.range.id)))


class _Line(msgspec.Struct):
    range: RangeId
    sequence: int
    key: str
    id: str
    operation: Operation
    committed_at: datetime
    body: msgspec.Raw


_BEGINS = b'{"range":'  # as each of our lines does
_encoder = msgspec.json.Encoder()
_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")  # in JSON, these are never inside a string


def _lines(changes: Sequence[Change]) -> bytes:
    return _encoder.encode_lines(
        _Line(
            range=x.range_id,
            sequence=x.sequence,
            key=x.key,
            id=x.id,
            operation=x.operation,
            committed_at=x.committed_at,
            body=msgspec.Raw(x.body.translate(_ONE_LINE) or b"null"),
        )
        for x in changes
    )


def _file_name(range_id: RangeId) -> str:
    """Return a name that no other range has and that leads to no other folder."""
    name = quote(range_id, safe="")
    return name.replace(".", "%2E") if name.startswith(".") else name


def _append(path: Path, data: bytes, *, fsync: bool) -> None:
    file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)  # let go of by the close
        end = _cut_half_line(file)
        try:
            _write_all(file, data)
            if fsync:
                os.fsync(file)
        except OSError:
            os.ftruncate(file, end)
            raise
    finally:
        os.close(file)


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _cut_half_line(file: int) -> int:
    """Cut what follows the last newline, if we wrote it; return where the file ends."""
    size = os.fstat(file).st_size
    end = _end_of_lines(file, size)
    if end == size:
        return end
    begun = os.pread(file, len(_BEGINS), end)
    if not _BEGINS.startswith(begun):
        raise OSError(errno.EEXIST, "its last line is not one that this observer began")
    os.ftruncate(file, end)
    return end


def _end_of_lines(file: int, size: int) -> int:
    """Return the place after the last newline, reading backwards."""
    end = size
    step = 1  # nearly always the last byte is the newline
    while end > 0:
        begin = max(0, end - step)
        newline = os.pread(file, end - begin, begin).rfind(b"\n")
        if newline >= 0:
            return begin + newline + 1
        end, step = begin, 65536
    return 0


def _sync_folder(folder: Path) -> None:
    """Make the names in it lasting, not only what the files hold."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_ADVICE = {
    errno.ENOSPC: "free some space; the batch is not written and may be tried again",
    errno.EDQUOT: "free some space; the batch is not written and may be tried again",
    errno.EACCES: "let the user who runs the host write there, or choose another path",
    errno.EROFS: "choose a path on a disk that can be written to",
    errno.ENOTDIR: "a part of the path is a file; choose another path",
    errno.EEXIST: "this file is somebody else's; choose another path",
    errno.EISDIR: "the path is a folder; choose another",
}


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "look at the path and the disk")
        raise OSError(
            error.errno, f"cannot append changes: {error.strerror}; {advice}", str(path)
        ) from error


def _in_words(change: Change) -> dict[str, object]:
    return {
        "range": change.range_id,
        "sequence": change.sequence,
        "key": change.key,
        "id": change.id,
        "operation": change.operation.value,
        "committed_at": change.committed_at.isoformat(),
    }


def _by_operation(counts: Counter[Operation]) -> dict[str, int]:
    return {"changes": counts.total(), **{x.value: counts[x] for x in Operation if counts[x]}}

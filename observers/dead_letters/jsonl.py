"""Dead letters in a file of JSON lines: to be read with a pager, and sent on by log shippers.

A letter is a line; one that was removed is a line more: ``{"removed": "5ab01c4f:r0:17"}``.
The file only grows. A line is written under a lock, and is on the disk when ``put`` returns.
The half line that a killed writer left behind is cut off by the next one, unread. Nothing
else is: a line of another program stays, and is refused with its number, and a last line
that an editor left without its end is read. Bodies are in Base64: they may be anything.

Limits: every call reads the file, so it is for some thousands of letters. All processes
must be on one machine, and the file on a local disk.
"""

import asyncio
import errno
import fcntl
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import BinaryIO

import msgspec

from changefeed.observers.dead_letters.letter import (
    DeadLetter,
    LetterHead,
    LetterId,
    check_same_change,
    in_order,
)
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.runtime.file_errors import why_it_may_pass
from changefeed.runtime.private_file import PRIVATE_FILE, make_private


class _Removed(msgspec.Struct):
    removed: LetterId


class _Kept(msgspec.Struct):
    id: LetterId
    letter: DeadLetter


class _Line(msgspec.Struct):
    """Any line; one of the two is there."""

    id: LetterId | None = None
    letter: DeadLetter | None = None
    removed: LetterId | None = None


_decoder = msgspec.json.Decoder(_Line)
_BEGINNINGS = b'{"id":"', b'{"removed":"'


class JsonLinesDeadLetters:
    """See the module. Files are read and written in a thread."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)

    async def put(self, letter: DeadLetter) -> None:
        await asyncio.to_thread(self._append, _Kept(id=letter.id, letter=letter))

    async def list(self) -> Sequence[LetterHead]:
        letters = await asyncio.to_thread(self._read)
        return sorted((x.head for x in letters.values()), key=in_order)

    async def get(self, letter_id: LetterId) -> DeadLetter | None:
        return (await asyncio.to_thread(self._read)).get(letter_id)

    async def remove(self, letter_id: LetterId) -> bool:
        return await asyncio.to_thread(self._append, _Removed(removed=letter_id))

    def _read(self) -> dict[LetterId, DeadLetter]:
        with self._locked(fcntl.LOCK_SH) as file:
            return _letters(file, self._path)[0]

    def _append(self, line: _Kept | _Removed) -> bool:
        """Write the line if it changes anything; say whether it does."""
        with self._locked(fcntl.LOCK_EX) as file:
            letters, end = _letters(file, self._path)
            letter_id = line.id if isinstance(line, _Kept) else line.removed
            if isinstance(line, _Kept) and letter_id in letters:
                check_same_change(line.letter, letters[letter_id], str(self._path))
            if isinstance(line, _Kept) == (letter_id in letters):
                os.fsync(file.fileno())  # who wrote it may have been killed before
                return False
            text = msgspec.json.encode(line) + b"\n"
            _write_at(file.fileno(), end, _line_end(file.fileno(), end) + text)
            return True

    @contextmanager
    def _locked(self, how: int) -> Iterator[BinaryIO]:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        with os.fdopen(handle, "r+b") as file:
            fcntl.flock(file, how)
            yield file  # closing the file gives up the lock


def _line_end(handle: int, end: int) -> bytes:
    """Return what the last whole line lacks."""
    return b"\n" if end and os.pread(handle, 1, end - 1) != b"\n" else b""


def _write_at(handle: int, end: int, data: bytes) -> None:
    """Write the last line, all of it and durably, or leave the file without it."""
    os.ftruncate(handle, end)
    try:
        written = 0
        while written < len(data):
            written += os.pwrite(handle, data[written:], end + written)
        os.fsync(handle)
    except BaseException:
        os.ftruncate(handle, end)  # else the next put would find it, and trust it
        raise


def _letters(file: BinaryIO, path: Path) -> tuple[dict[LetterId, DeadLetter], int]:
    """Return the letters that are there, and where the last whole line ends."""
    letters: dict[LetterId, DeadLetter] = {}
    end = 0
    for number, text in enumerate(file, start=1):
        try:
            line = _read_line(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if _is_torn(text):
                break
            raise OSError(
                errno.EINVAL,
                f"line {number} is not a dead letter ({error}); mend or move the file",
                str(path),
            ) from error
        end += len(text)
        if line.letter is not None:
            letters[line.letter.id] = line.letter
        elif line.removed is not None:
            letters.pop(line.removed, None)
    return letters, end


def _read_line(text: bytes) -> _Line:
    line = _decoder.decode(text)
    if line.letter is None and line.removed is None:
        raise msgspec.DecodeError("another program wrote it, or a newer version of this one")
    return line


def _is_torn(text: bytes) -> bool:
    """Return whether a last line is what a killed writer, or a dead machine, left of one."""
    if text.endswith(b"\n"):
        return False
    ours = any(text.startswith(x) or x.startswith(text) for x in _BEGINNINGS)
    return ours or not text.strip(b"\0")


@asynccontextmanager
async def open_jsonl(path: str) -> AsyncIterator[JsonLinesDeadLetters]:
    """Make sure, before anything has failed, that letters can be kept there.

    Raise ``StoreUnavailable`` if they can later, else ``StoreRefused``.
    """
    letters = JsonLinesDeadLetters(path)
    try:
        await asyncio.to_thread(_prepare, Path(path))
        await letters.list()
    except OSError as error:
        raise _not_opened(path, error) from error
    yield letters


def _not_opened(path: str, error: OSError) -> Exception:
    text = f"dead letters cannot be kept in {path}: {error}"
    reason = why_it_may_pass(error)
    if reason is None:
        return StoreRefused(text)
    return StoreUnavailable(f"{text}; {reason}")


def _prepare(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    make_private(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # the name of the file must last, too
    finally:
        os.close(folder)

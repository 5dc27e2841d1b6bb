"""Reading and writing the files that people name: whatever lies there, it has an end.

A named pipe without anybody at its other end would be waited for, and a device may go on for
ever.
"""

import errno
import os
import stat
import time
from pathlib import Path
from typing import BinaryIO, Final

_CHUNK: Final = 2**16
_MAX_WAIT: Final = 2.0
_LOOK: Final = 0.02


def is_there(path: Path) -> bool:
    """Whether something is there. Raise ``OSError`` where that cannot be told, as for a name
    that is too long or a directory that is closed; since Python 3.14 ``Path.exists`` says no.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):  # of a NUL
        return False
    return True


def read_file(path: Path, *, most: int) -> bytes:
    """Return what a file holds, or a pipe that somebody writes into (``<(command)``).

    Raise ``OSError`` if it cannot be read, if nobody begins to write into the pipe for two
    seconds, or if there are more than ``most`` bytes.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        begin = _begin(handle, str(path))
        os.set_blocking(handle, True)
        with os.fdopen(handle, "rb", closefd=False) as opened:
            return begin + read_stream(opened, str(path), most=most - len(begin))
    finally:
        os.close(handle)


def read_stream(opened: BinaryIO, name: str, *, most: int) -> bytes:
    """Return all of it. Raise ``OSError`` if that is more than ``most`` bytes."""
    found = opened.read(most + 1) if most >= 0 else b""
    if len(found) > most:
        raise OSError(errno.EFBIG, "it is too large for such a file", name)
    return found


def write_into(path: Path, document: bytes) -> None:
    """Write into what is no file, as a pipe or a device. Raise ``OSError`` if that fails, or
    if nobody reads from the pipe.
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        text = "it is a pipe, and nobody reads from it"
        raise OSError(errno.ENXIO, text, str(path)) from error
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as opened:
        opened.write(document)


def _begin(handle: int, name: str) -> bytes:
    """Return some of what is there; of a pipe, wait until somebody has opened it to write."""
    until = time.monotonic() + _MAX_WAIT
    while True:
        try:
            found = os.read(handle, _CHUNK)
        except BlockingIOError:
            return b""  # somebody writes into the pipe, and has not begun yet
        if found or not stat.S_ISFIFO(os.fstat(handle).st_mode):
            return found
        if time.monotonic() >= until:
            raise OSError(errno.EPIPE, "it is a pipe, and nobody writes into it", name)
        time.sleep(_LOOK)

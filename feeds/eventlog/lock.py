"""One process writes: a lock of the operating system, which dies with its holder.

The file names the holder, for people; what counts is the lock, not the text. A forked
child that inherits the file keeps the lock as long as it lives.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from changefeed.feeds.errors import FeedRefused, FeedUnavailable


@contextmanager
def writer_lock(path: Path) -> Iterator[None]:
    """Hold the lock; raise ``FeedUnavailable``, naming the holder, if another has it."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise FeedRefused(
            f"{path} cannot be written: {error}. Give this user the right to write the "
            f"log's directory"
        ) from error
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(file, 32, 0).decode(errors="replace").strip() or "unknown"
            raise FeedUnavailable(
                f"the event log is being written by process {holder} ({path}): one process "
                f"writes at a time. Stop it, or append through it"
            ) from error
        os.truncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(file)

"""What Spark keeps in the checkpoint directory of a query, read without Spark.

``offsets/N`` is written before batch N is read, ``commits/N`` once it is done. Both are
text: a version, then lines of JSON, of which the last of an offset is that of the source.

Our own files are beside it: a lock, and where the first batch begins.
"""

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from changefeed.pipeline.source.offsets import Offset
from changefeed.runtime.errors import UserError

_LOCK: Final = "_lock"
_START: Final = "_start"
_OFFSET_LINES: Final = 3  # the version, what Spark has settled, and the offset of the source
_LOOK: Final = 0.5  # seconds; far more than a look at the lock takes


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedBatch:
    """The last batch that is done, and how far it got."""

    batch: int
    offset: Offset


def committed(checkpoint: str) -> CommittedBatch | None:
    """Return how far a query has got, ``None`` if it has finished no batch yet.

    Raise ``UserError`` for a checkpoint that is not on this machine, or not ours.
    """
    home = _home(checkpoint)
    batches = [int(x.name) for x in home.glob("commits/*") if x.name.isdigit()]
    if not batches:
        return None
    batch = max(batches)
    return CommittedBatch(batch=batch, offset=_offset(home, batch))


def _offset(home: Path, batch: int) -> Offset:
    file = home / "offsets" / str(batch)
    lines = _lines(file, least=_OFFSET_LINES)
    try:
        return Offset.of(lines[-1])
    except UserError as error:
        raise _damaged(file, str(error).partition(". Give")[0]) from error


def _lines(file: Path, least: int = 1) -> list[str]:
    try:
        lines = file.read_text("utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise _damaged(file, str(error)) from error
    if not lines:
        raise _damaged(file, "it is empty")
    if len(lines) < least or (least > 1 and not lines[0].startswith("v")):
        raise _damaged(file, f"Spark would not write {lines[0][:80]!r} and {len(lines)} lines")
    return lines


def _damaged(file: Path, reason: str) -> UserError:
    return UserError(
        f"the checkpoint of a query is damaged: {file}: {reason}. Restore the checkpoint "
        f"directory from a copy that is not newer than the table, or name a new directory and "
        f"start again"
    )


def begun(checkpoint: str) -> bool:
    """Whether a query has ever begun a batch here. ``False`` if it cannot be seen from here."""
    return not is_elsewhere(checkpoint) and last_begun(checkpoint) >= 0


def last_begun(checkpoint: str) -> int:
    """Return the number of the last batch that was begun, done or not; -1 for none."""
    numbers = [int(x.name) for x in _home(checkpoint).glob("offsets/*") if x.name.isdigit()]
    return max(numbers, default=-1)


def keep_start(checkpoint: str, offset: str) -> None:
    """Keep where the first batch begins, on the disk before that batch is."""
    home = _home(checkpoint)
    home.mkdir(parents=True, exist_ok=True)
    fresh = home / f"{_START}.new"
    with fresh.open("w", encoding="utf-8") as file:
        file.write(offset)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(home / _START)
    _sync(home)  # the name of the file must last, too


def _sync(folder: Path) -> None:
    """Bring the names in a folder to the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def kept_start(checkpoint: str) -> Offset:
    """Return where the first batch begins or began; raise ``UserError`` if it is lost."""
    file = _home(checkpoint) / _START
    try:
        return Offset.of("\n".join(_lines(file)))
    except UserError as error:
        raise _damaged(file, str(error).partition(". Give")[0]) from error


@contextmanager
def owned(checkpoint: str) -> Iterator[None]:
    """Keep other pipelines of this machine off a checkpoint until the block is left.

    Raise ``UserError`` if one runs on it. One that is elsewhere cannot be kept.
    """
    if is_elsewhere(checkpoint):
        yield
        return
    home = _home(checkpoint)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except (PermissionError, NotADirectoryError, FileNotFoundError, FileExistsError) as error:
        raise UserError(
            f"{home} cannot be made: {error.strerror}. Name a directory with --directory"
        ) from error
    with (home / _LOCK).open("ab") as lock:
        try:
            for attempt in Retrying(
                retry=retry_if_exception_type(BlockingIOError),  # somebody may just be looking
                stop=stop_after_delay(_LOOK),
                wait=wait_fixed(_LOOK / 10),
                reraise=True,
            ):
                with attempt:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"a pipeline runs on the checkpoint {home}: stop it first"
            ) from None
        yield


@contextmanager
def all_owned(checkpoints: Sequence[str]) -> Iterator[None]:
    with ExitStack() as stack:
        for checkpoint in checkpoints:
            stack.enter_context(owned(checkpoint))
        yield


def is_owned(checkpoint: str) -> bool:
    """Whether a pipeline of this machine runs on a checkpoint. Nothing is made by asking."""
    if is_elsewhere(checkpoint) or not (_home(checkpoint) / _LOCK).exists():
        return False
    with (_home(checkpoint) / _LOCK).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def is_elsewhere(checkpoint: str) -> bool:
    """Whether a checkpoint is where only Spark can reach it."""
    return "://" in checkpoint and not checkpoint.startswith("file://")


def _home(checkpoint: str) -> Path:
    if is_elsewhere(checkpoint):
        raise UserError(f"{checkpoint} is not on this machine, and cannot be read here")
    return Path(checkpoint.removeprefix("file://"))

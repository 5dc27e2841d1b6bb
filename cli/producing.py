"""Appending JSON lines to an event log, or to a collection, each as one change.

What was appended stays, however the command ends; it always prints how far it got.
"""

import asyncio
import errno
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from changefeed.cli.exit_codes import exit_message, print_error
from changefeed.cli.io.appenders import Appender, through_brokers
from changefeed.cli.io.blocks import BlockReader
from changefeed.cli.io.json_lines import FieldNames, LineSplitter, record_of
from changefeed.cli.io.report import say
from changefeed.cli.io.standard_input import open_standard_input
from changefeed.feeds.errors import FeedError
from changefeed.log.client.address import PLAIN, TLS
from changefeed.log.directory.directory import create_log, has_nothing
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.hashing import DEFAULT_PARTS
from changefeed.log.producing import log_directory
from changefeed.log.records import Record
from changefeed.runtime.errors import UserError
from changefeed.runtime.exit_codes import FAILED, USER_ERROR
from changefeed.runtime.quantities import counted
from changefeed.runtime.signals import on_stop_signals, stop_signals

_BATCH = 1000
"""Lines that are appended at once, at most."""


@dataclass(kw_only=True)
class Tally:
    """How far it got. ``line`` is the last line that is dealt with, ``size`` bytes read."""

    appended: int = 0
    skipped: int = 0
    line: int = 0
    size: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducePlan:
    """``first`` is the number of the line to begin with: those before it are left out."""

    fields: FieldNames
    skip_bad: bool
    first: int = 1


def produce(log: str, parts: int | None, file: str, plan: ProducePlan) -> int:
    """Append the lines of a file, or of a pipe for ``-``; return the exit code."""
    tally = Tally()
    target = _target(log, parts)
    with ExitStack() as stack:
        source = (
            open_standard_input().fileno()
            if file == "-"
            else stack.enter_context(_opened(file))
        )
        show = stack.enter_context(_progress(tally, source))
        return asyncio.run(_produce(target, source, plan, tally, show))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    """Where changes go. ``open`` makes what appends them, ``name`` is for people."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[Appender]]


def _target(log: str, parts: int | None) -> _Target:
    if log.partition(":")[0] in (PLAIN, TLS):
        if parts is not None:
            raise UserError(
                "set the number of parts when you create the collection: changefeed log "
                f"create {log} --parts={parts}"
            )
        return _Target(name=log, open=lambda: through_brokers(log))
    home = log_directory(log)
    return _Target(name=str(home), open=lambda: _in_log(home, parts))


@asynccontextmanager
async def _in_log(home: Path, parts: int | None) -> AsyncIterator[Appender]:
    """Make a missing log with its first change: a mistake, such as a wrong --key, leaves none.

    Refuse options that an existing log cannot meet.
    """
    async with AsyncExitStack() as stack:
        writers: list[EventLogWriter] = []

        async def open_writer() -> EventLogWriter:
            if not writers:
                if await asyncio.to_thread(has_nothing, home):
                    await create_log(home, DEFAULT_PARTS if parts is None else parts)
                writer = await stack.enter_async_context(EventLogWriter.open(home))
                if parts not in (None, there := writer.collection.parts):
                    raise UserError(
                        f"the log at {home} has {there} parts, and that is for good: leave "
                        f"out --parts {parts}, or make another log"
                    )
                writers.append(writer)
            return writers[0]

        if not await asyncio.to_thread(has_nothing, home):
            await open_writer()  # say what is wrong with it before any input comes
        yield Appender(open_writer, under_way=0)  # one batch is one transaction


async def _produce(
    target: _Target, source: int, plan: ProducePlan, tally: Tally, show: Callable[[], None]
) -> int:
    async with target.open() as appender:
        began, blocks = time.monotonic(), BlockReader(source)
        with _stopping(blocks):
            code, reason = await _append_all(appender, blocks, plan, tally, show)
    _report(tally, target.name, reason, time.monotonic() - began)
    return code


async def _append_all(
    appender: Appender,
    blocks: BlockReader,
    plan: ProducePlan,
    tally: Tally,
    show: Callable[[], None],
) -> tuple[int, str]:
    """Append until the end or an error; return the exit code and the reason."""
    lines = LineSplitter()
    reader = _Reader(plan, tally)
    try:
        while (block := await blocks.next()) is not None:
            tally.size += len(block)
            found = reader.wanted(lines.cut(block))
            for first in range(0, len(found), _BATCH):
                if blocks.stopped:
                    break
                records, step, bad = reader.records(found[first : first + _BATCH])
                await appender.append(records, step)
                show()
                if bad is not None:
                    await appender.finish()
                    reason = f"{bad} (--skip-bad leaves out such lines)"
                    return USER_ERROR, f"line {tally.line + 1}: {reason}"
            if not block:
                await appender.finish()
                return 0, ""
        await appender.finish()
    except (FeedError, OSError) as error:
        text, code = exit_message(error) or (str(error), FAILED)
        return code, text
    return FAILED, "stopped before the end"


class _Reader:
    """Makes records of lines, and says what is dealt with once they are appended."""

    def __init__(self, plan: ProducePlan, tally: Tally) -> None:
        self._plan = plan
        self._tally = tally
        self._left_out = plan.first - 1
        tally.line = plan.first - 1

    def wanted(self, lines: Sequence[bytes]) -> Sequence[bytes]:
        """Leave out the lines before the first that is wanted."""
        skipped = min(self._left_out, len(lines))
        self._left_out -= skipped
        return lines[skipped:]

    def records(
        self, lines: Sequence[bytes]
    ) -> tuple[Sequence[Record], Callable[[], None], UserError | None]:
        """Return the changes of some lines, up to one that is bad and may not be.

        With them what notes, once they are appended, how far that is; and that line's fault.
        """
        records: list[Record] = []
        seen, skipped, bad = 0, 0, None
        for line in lines:
            try:
                record = record_of(line, self._plan.fields)
            except UserError as error:
                if not self._plan.skip_bad:
                    bad = error
                    break
                skipped += 1
                record = None
            seen += 1
            if record is not None:
                records.append(record)

        def note() -> None:
            self._tally.appended += len(records)
            self._tally.skipped += skipped
            self._tally.line += seen

        return records, note, bad


@contextmanager
def _opened(file: str) -> Iterator[int]:
    try:
        if Path(file).is_dir():
            raise IsADirectoryError(errno.EISDIR, "Is a directory", file)
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _stopping(blocks: BlockReader) -> Iterator[None]:
    """Finish the batch on the first signal that asks for the end; a second one ends the
    process.
    """
    loop, numbers = asyncio.get_running_loop(), stop_signals()

    def stop() -> None:
        blocks.stop()
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    with on_stop_signals(stop):
        yield


@contextmanager
def _progress(tally: Tally, source: int) -> Iterator[Callable[[], None]]:
    """Show on a terminal how fast it goes, and for a file how far."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda: None
        return
    total = os.fstat(source).st_size or None
    bar = Progress(
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), console=console,
        transient=True,
    )  # fmt: skip
    began = time.monotonic()
    with bar:
        task = bar.add_task("appending", total=total)

        def show() -> None:
            rate = tally.appended / max(time.monotonic() - began, 0.001)
            text = f"{counted(tally.appended, 'change')}, {rate:,.0f} a second"
            bar.update(task, completed=tally.size, description=text)

        yield show


def _report(tally: Tally, home: str, reason: str, seconds: float) -> None:
    skipped = f", {counted(tally.skipped, 'bad line')} left out" if tally.skipped else ""
    done = f"{counted(tally.appended, 'change')} appended to {home}{skipped}"
    if not reason:
        say(f"{done}, in {seconds:.1f} s")
        return
    print_error(f"{reason}\n{done}; go on from line {tally.line + 1}")

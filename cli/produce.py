"""``changefeed produce``: JSON lines become changes in an event log.

What was appended stays, however the command ends; it always prints how far it got.
"""

import asyncio
import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from changefeed.cli.exit_codes import (
    FAILED,
    USER_ERROR,
    exit_message,
    exit_on_error,
    print_error,
)
from changefeed.cli.io.blocks import Blocks
from changefeed.cli.io.json_lines import BadLine, Fields, Lines, record_of
from changefeed.feeds.errors import FeedError
from changefeed.feeds.eventlog import (
    BACKGROUND,
    DEFAULT_PARTS,
    EventLogWriter,
    Record,
    SealPolicy,
    create_log,
)
from changefeed.feeds.eventlog.catalog import read_catalog
from changefeed.runtime.errors import UserError


@dataclass(kw_only=True)
class Tally:
    """How far it got. ``line`` is the last line that is dealt with, ``size`` bytes read."""

    appended: int = 0
    skipped: int = 0
    line: int = 0
    size: int = 0


class _BadLineAt(Exception):
    def __init__(self, line: int, reason: str) -> None:
        super().__init__(line, reason)
        self.line = line
        self.reason = reason


def produce(
    log: Annotated[str, typer.Argument(help="The directory of the event log.")],
    file: Annotated[str, typer.Argument(help="A file of JSON lines; - reads a pipe.")] = "-",
    *,
    key: Annotated[str, typer.Option(help="The field that orders and places the changes.")],
    id_: Annotated[str | None, typer.Option("--id", help="The field of the id.")] = None,
    time_: Annotated[
        str | None, typer.Option("--time", help="The field of the time; else it is now.")
    ] = None,
    operation: Annotated[
        str | None, typer.Option(help="The field that says insert, replace or delete.")
    ] = None,
    parts: Annotated[
        int | None, typer.Option(help=f"Parts of a new log, {DEFAULT_PARTS} if not said.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Lines to append at once, at most.")] = 1000,
    create: Annotated[bool, typer.Option(help="Create the log if it is missing.")] = True,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Count bad lines and continue.")
    ] = False,
    seal: Annotated[
        bool,
        typer.Option("--seal", help="Seal what lies behind meanwhile; see log seal."),
    ] = False,
) -> None:
    """Append JSON lines to an event log, each as one change.

    Fields are named as they are in the line; order.id is the field id in the object order.
    It ends with 0 once all is appended, with 2 at a bad line, and with 1 if it was stopped
    or could not write. What was appended before stays, and it prints where to continue.
    """
    with exit_on_error():
        fields = Fields(key=key, id=id_, time=time_, operation=operation)
        home = Path(log.removeprefix("eventlog:")).expanduser()
        tally = Tally()
        with ExitStack() as stack:
            source = _standard_input() if file == "-" else stack.enter_context(_opened(file))
            show = stack.enter_context(_progress(tally, source))
            code = asyncio.run(
                _produce(
                    home,
                    source,
                    _Plan(fields=fields, batch=batch, skip_bad=skip_bad),
                    tally,
                    show,
                    parts=parts,
                    create=create,
                    sealing=BACKGROUND if seal else None,
                )
            )
    raise typer.Exit(code)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    fields: Fields
    batch: int
    skip_bad: bool


async def _produce(
    home: Path,
    source: int,
    plan: _Plan,
    tally: Tally,
    show: Callable[[], None],
    *,
    parts: int | None,
    create: bool,
    sealing: SealPolicy | None,
) -> int:
    await _prepare(home, parts, create=create)
    async with EventLogWriter.open(home, sealing=sealing) as writer:
        began, blocks = time.monotonic(), Blocks(source)
        with _stopping(blocks):
            code, reason = await _append_all(writer, blocks, plan, tally, show)
    _report(tally, home, reason, time.monotonic() - began)
    return code


async def _append_all(
    writer: EventLogWriter, blocks: Blocks, plan: _Plan, tally: Tally, show: Callable[[], None]
) -> tuple[int, str]:
    """Append until the end or an error; return the exit code and the reason."""
    lines = Lines()
    try:
        while (block := await blocks.next()) is not None:
            tally.size += len(block)
            found = lines.cut(block)
            for first in range(0, len(found), plan.batch):
                if blocks.stopped:
                    break
                await _append(writer, found[first : first + plan.batch], plan, tally)
                show()
            if not block:
                return 0, ""
    except _BadLineAt as bad:
        return USER_ERROR, f"line {bad.line}: {bad.reason} (--skip-bad leaves out such lines)"
    except (FeedError, OSError) as error:
        known = exit_message(error)
        return (FAILED if known is None else known[1]), str(error)
    return FAILED, "stopped before the end"


async def _append(
    writer: EventLogWriter, lines: Sequence[bytes], plan: _Plan, tally: Tally
) -> None:
    """Append the changes of some lines; those before a bad one as well."""
    records: list[Record] = []
    seen, skipped, bad = 0, 0, None
    for line in lines:
        try:
            record = record_of(line, plan.fields)
        except BadLine as error:
            if not plan.skip_bad:
                bad = _BadLineAt(tally.line + seen + 1, str(error))
                break
            skipped += 1
            record = None
        seen += 1
        if record is not None:
            records.append(record)
    if records:
        await writer.append(records)
    tally.appended += len(records)
    tally.skipped += skipped
    tally.line += seen
    if bad is not None:
        raise bad


async def _prepare(home: Path, parts: int | None, *, create: bool) -> None:
    """Create the log if it is missing; refuse options that an existing log cannot meet."""
    if create and await asyncio.to_thread(_has_nothing, home):
        await create_log(home, DEFAULT_PARTS if parts is None else parts)
        return
    catalog = await asyncio.to_thread(read_catalog, home)
    if parts is not None and parts != catalog.parts:
        raise UserError(
            f"the log at {home} has {catalog.parts} parts, and that is for good: leave out "
            f"--parts {parts}, or make another log"
        )


def _has_nothing(home: Path) -> bool:
    return not home.exists() or (home.is_dir() and not any(home.iterdir()))


def _standard_input() -> int:
    if sys.stdin is None:
        raise UserError("standard input is closed: name a file, or give it something to read")
    return sys.stdin.fileno()


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
def _stopping(blocks: Blocks) -> Iterator[None]:
    """Finish the batch on the first SIGINT or SIGTERM; a second one ends the process."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        blocks.stop()
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)


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
            text = f"{tally.appended:,} changes, {rate:,.0f} a second"
            bar.update(task, completed=tally.size, description=text)

        yield show


def _report(tally: Tally, home: Path, reason: str, seconds: float) -> None:
    skipped = f", {tally.skipped:,} bad lines left out" if tally.skipped else ""
    done = f"{tally.appended:,} changes appended to {home}{skipped}"
    if not reason:
        typer.echo(f"{done}, in {seconds:.1f} s")
        return
    print_error(f"{reason}\n{done}; go on from line {tally.line + 1}")

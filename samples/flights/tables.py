"""The second half: the feed becomes tables on Spark, kept by the ``changefeed`` command.

It is the command as anyone would run it (``samples.delays``), in a process of its own: what
Spark and Java have to say goes to its log. How far each table is can be seen from outside,
in the checkpoints of its query, after each batch.

Limits: should this process itself be killed, the command goes on until the tables are up to
date, and ends then.
"""

import asyncio
import os
import signal
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from changefeed.pipeline.java import java_home
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.status import tables_status
from samples.delays.tables import NotKept, command, days, settings_of

from . import kept
from .fleet import Standstill
from .observer import Carrier
from .place import Place
from .play import Outcome
from .proof import Claim
from .screen import Screen
from .table_proof import prove_tables
from .watch import TableSight

_ROOT = Path(__file__).parents[2]
_LOOK_INTERVAL = 0.5
_MAX_STANDSTILL = 300.0
_STOP_TIMEOUT = 40.0


def java_is_found() -> None:
    """Raise ``UserError``, with advice, if there is no Java for Spark."""
    java_home(os.environ)


def make_directory(settings: PipelineSettings) -> None:
    """Make the place of the tables: it is looked at before Spark has made it."""
    Path(settings.directory).mkdir(exist_ok=True)


async def keep_tables(place: Place, total: int, screen: Screen) -> None:
    """Bring the tables of a run up to date, and show how far they are.

    Raise ``NotKept`` if the command fails, and ``Standstill`` if nothing moves any more.
    """
    settings, log = settings_of(place.directory), place.directory / "logs" / "pipeline.log"
    screen.say("the same feed becomes three tables: starting Spark")
    began = time.monotonic()
    make_directory(settings)
    with screen.live_tables() as show:
        async with _running(command(place.directory), log, screen) as process:
            before, since = None, began
            while not await _ended(process, within=_LOOK_INTERVAL):
                show(seen := look(settings, total))
                if seen != before:
                    before, since = seen, time.monotonic()
                if time.monotonic() - since > _MAX_STANDSTILL:
                    raise Standstill(
                        f"no table has moved for {_MAX_STANDSTILL:g} s; look at the "
                        f"pipeline's log (run with --keep)"
                    )
        show(look(settings, total))
    if process.returncode:
        raise NotKept(process.returncode, log.read_text(encoding="utf-8", errors="replace"))
    screen.say(f"the tables are up to date, after {time.monotonic() - began:.1f} s")


def prove_kept(place: Place, hosts: Outcome) -> tuple[Sequence[Claim], Mapping[str, Carrier]]:
    """Hold the tables of a run against data and hosts; return the claims and the figures.

    Raise ``NoTable`` if one was never made.
    """
    settings = settings_of(place.directory)
    figures = kept.carriers(days(settings))
    claims = prove_tables(
        hosts.expected,
        hosts.proof,
        hosts.observed,
        ends=hosts.at_rest.changes,
        changes=kept.changes(settings),
        latest=kept.latest(settings),
        figures=figures,
    )
    return claims, figures


def look(settings: PipelineSettings, total: int) -> Sequence[TableSight]:
    """See how far each table is. A table without a batch has taken in nothing."""
    return [
        TableSight(
            table=x.table,
            batches=0 if x.batch is None else x.batch + 1,
            done=0 if x.lag is None else total - x.lag,
            total=total,
        )
        for x in tables_status(settings).tables
    ]


@asynccontextmanager
async def _running(line: Sequence[str], log: Path, screen: Screen) -> AsyncIterator[Process]:
    """Run a command. Leaving the block stops it, if it still runs, and all it has started.

    It is a session of its own, so that Ctrl-C is heard here first.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as said:
        process = await asyncio.create_subprocess_exec(
            *line, cwd=_ROOT, stdin=DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            screen.say("stopping Spark (Ctrl-C again breaks it off)")
            await _stop(process)


async def _stop(process: Process) -> None:
    """Ask it to stop. Kill it if that takes too long, or if nobody waits for it any more."""
    process.send_signal(signal.SIGTERM)
    try:
        await _ended(process, within=_STOP_TIMEOUT)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _ended(process: Process, *, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            await process.wait()
    except TimeoutError:
        return False
    return True

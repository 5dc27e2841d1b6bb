"""``changefeed pipeline``: the tables of a feed, kept by Spark.

Ends as all commands do: 0 after an orderly end, 1 if it failed and may work later, 2 if a
person has to change something first. Spark is imported by the commands that need it.
"""

import asyncio
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from feeds.errors import FeedError, FeedRefused
from leases.errors import ContainerError, ContainerRefused
from leases.lease import Lease
from leases.opening import open_container
from observers.errors import ObserverRefused

from .errors import PipelineRefused, QueryFailed
from .settings import PipelineSettings, load_settings

FAILED = 1
MISTAKE = 2

app = typer.Typer(
    name="pipeline",
    help="Keep tables of a feed with Spark: every change, the latest state, figures.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Config = Annotated[Path | None, typer.Option("--config", help="A TOML file with settings.")]
Feed = Annotated[str | None, typer.Option("--feed", help="Where changes come from.")]
Directory = Annotated[
    str | None, typer.Option("--directory", help="Where tables and checkpoints are kept.")
]
Start = Annotated[
    str | None,
    typer.Option(
        "--start", help="Where tables without a checkpoint start: beginning, now, ..."
    ),
]
Schema = Annotated[
    str | None,
    typer.Option("--body-schema", help="Columns of bodies, as in 'n INT, who STRING'."),
]
Metrics = Annotated[
    int | None, typer.Option("--metrics-port", help="Serve metrics for Prometheus there.")
]
Submitted = Annotated[
    bool, typer.Option("--submitted", hidden=True, help="spark-submit says where to run.")
]


@app.command()
def run(
    *,
    config: Config = None,
    feed: Feed = None,
    directory: Directory = None,
    start: Start = None,
    body_schema: Schema = None,
    metrics_port: Metrics = None,
    submitted: Submitted = False,
) -> None:
    """Keep the tables up to date until SIGTERM or Ctrl-C."""
    with mistakes_told():
        settings = _settings(config, feed, directory, start, body_schema)
        _keep(settings, once=False, metrics_port=metrics_port, submitted=submitted)


@app.command()
def once(
    *,
    config: Config = None,
    feed: Feed = None,
    directory: Directory = None,
    start: Start = None,
    body_schema: Schema = None,
    metrics_port: Metrics = None,
    submitted: Submitted = False,
) -> None:
    """Bring the tables up to where the feed is now, and end."""
    with mistakes_told():
        settings = _settings(config, feed, directory, start, body_schema)
        _keep(settings, once=True, metrics_port=metrics_port, submitted=submitted)


@app.command()
def status(
    *,
    config: Config = None,
    feed: Feed = None,
    directory: Directory = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show how far each table is. Does not start Spark."""
    from .status import tables_status  # noqa: PLC0415 - with the rest of the source

    with mistakes_told():
        found = tables_status(_settings(config, feed, directory, None, None))
        if as_json:
            typer.echo(json.dumps([asdict(x) for x in found]))
            return
        table = Table("table", "batch", "ranges", "lag")
        for x in found:
            none = x.batch is None
            table.add_row(
                x.table, *(["-"] * 3 if none else map(str, (x.batch, x.ranges, x.lag)))
            )
        Console().print(table)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def submit(
    context: typer.Context,
    *,
    config: Annotated[Path, typer.Option("--config", help="The settings to submit.")],
    master: Annotated[str, typer.Option("--master", help="The cluster, as for spark-submit.")],
    once: Annotated[bool, typer.Option("--once", help="As the command once does.")] = False,
    show: Annotated[bool, typer.Option("--show", help="Only print the command.")] = False,
) -> None:
    """Run the pipeline on a Spark cluster; further arguments go to spark-submit."""
    from .submitting import command  # noqa: PLC0415 - only here

    with mistakes_told():
        load_settings(config, {})
        directory = Path(tempfile.mkdtemp(prefix="changefeed-submit-"))
        line = command(
            config.absolute(), directory=directory, master=master, once=once, spark=context.args
        )
        if show:
            typer.echo(" ".join(line))
            return
        os.execvp(line[0], line)  # noqa: S606 - without a shell, and what was just built


@app.command()
def observe(
    *,
    feed: Annotated[str, typer.Option("--feed", help="Where changes come from.")],
    observer: Annotated[str, typer.Option("--observer", help="module:Class, log, jsonl, ...")],
    checkpoint: Annotated[str, typer.Option("--checkpoint", help="A directory for positions.")],
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="An argument for the observer."),
    ] = None,
    start: Annotated[str, typer.Option("--start", help="Where to start.")] = "beginning",
    from_leases: Annotated[
        str | None, typer.Option("--from-leases", help="Start where hosts have stopped.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="End where the feed is now.")] = False,
) -> None:
    """Run an observer on Spark executors, at least once for each change."""
    with mistakes_told():
        from .keeping import Observing, observe_until  # noqa: PLC0415 - imports pyspark

        if from_leases is not None:
            start = _start_from(from_leases, feed)
        pairs = [x.partition("=") for x in option or ()]
        wanted = Observing(
            feed=feed,
            observer=observer,
            options={key: _parsed(value) for key, _, value in pairs},
            checkpoint=str(Path(checkpoint).absolute()),
            start=start,
            once=once,
        )
        observe_until(_stopped_by_signals(), wanted)


@app.command("export-leases")
def export_leases(
    *,
    feed: Annotated[str, typer.Option("--feed", help="The feed of the query.")],
    checkpoint: Annotated[str, typer.Option("--checkpoint", help="That of the query.")],
    leases: Annotated[str, typer.Option("--leases", help="Where hosts will keep leases.")],
) -> None:
    """Make leases, so that hosts go on where a query has stopped."""
    from .checkpoints import committed  # noqa: PLC0415 - only here
    from .positions import leases_of, write_leases  # noqa: PLC0415
    from .source.opening import open_access  # noqa: PLC0415

    async def store(made: Sequence[Lease]) -> None:
        async with open_container(leases) as container:
            await write_leases(container, made)

    with mistakes_told():
        done = committed(checkpoint)
        if done is None:
            raise PipelineRefused(f"{checkpoint} has no batch that is done: nothing to export")
        with closing(open_access(feed)) as access:
            made = leases_of(done.offset, access)
        asyncio.run(store(made))
        typer.echo(f"made {len(made)} leases")


@contextmanager
def mistakes_told() -> Iterator[None]:
    """End the command with a message instead of a traceback, where the error is known."""
    try:
        yield
    except (PipelineRefused, FeedRefused, ContainerRefused, ObserverRefused) as error:
        _end(str(error), MISTAKE)
    except (FeedError, ContainerError, QueryFailed, OSError) as error:
        _end(str(error), FAILED)
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "pyarrow", "deltalake"):
            raise
        _end(f"{error.name} is missing: pip install 'changefeed-host[spark]'", MISTAKE)


def _start_from(leases: str, feed: str) -> str:
    """Return the offset, as text, at which the hosts of these leases have stopped."""
    from .positions import offset_of, read_leases  # noqa: PLC0415 - only here
    from .source.opening import open_access  # noqa: PLC0415

    async def read() -> Sequence[Lease]:
        async with open_container(leases) as container:
            return await read_leases(container)

    found = asyncio.run(read())
    with closing(open_access(feed)) as access:
        return offset_of(found, access).as_text()


def _parsed(text: str) -> object:
    """Read numbers, true, false and the like as JSON does; the rest is text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _stopped_by_signals() -> threading.Event:
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    return stop


def _end(text: str, code: int) -> NoReturn:
    sys.stderr.write(f"changefeed: {text}\n")
    raise typer.Exit(code)


def _settings(
    config: Path | None,
    feed: str | None,
    directory: str | None,
    start: str | None,
    body_schema: str | None,
) -> PipelineSettings:
    flags = {"feed": feed, "directory": directory, "start": start, "body_schema": body_schema}
    return load_settings(config, flags)


def _keep(
    settings: PipelineSettings, *, once: bool, metrics_port: int | None, submitted: bool
) -> None:
    from .keeping import keep  # noqa: PLC0415 - it imports pyspark

    stop = _stopped_by_signals()
    keep(settings, stop, once=once, metrics_port=metrics_port, submitted=submitted)

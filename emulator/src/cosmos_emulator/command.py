"""The command ``cosmos-emulator``: serve an account until stopped.

It ends with 0 when it is told to stop, and with 2 if a person has to change something first:
the port, the directory, the key.
"""

import asyncio
import errno
import gc
import logging
import os
import re
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from cosmos_emulator import __version__
from cosmos_emulator.settings import (
    DEVELOPMENT_KEY,
    USUAL_REGION,
    EmulatorSettings,
    RegionSettings,
)
from cosmos_emulator.store import DirectoryInUse
from cosmos_emulator.trust import advice_on_trust

_REFUSED = 2
_HERE = "http://127.0.0.1:8081/"
_SWITCH_SECONDS = 0.0005  # a request waits so long for each query that runs beside it
_COLLECTED = (50_000, 10, 50)  # a query keeps millions of objects, and a look at all takes long


def main(arguments: Sequence[str] | None = None, name: str = "cosmos-emulator") -> Any:
    """Run the command with the arguments of the process, or with others."""
    app = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"auto_envvar_prefix": "COSMOS_EMULATOR"},
    )
    app.callback(invoke_without_command=True)(emulator)
    app.command()(trust)
    app.command()(export)
    app.command("import")(import_)
    return app(arguments, prog_name=name)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it with the flag
    if wanted:
        typer.echo(f"cosmos-emulator {__version__}")
        raise typer.Exit


def emulator(
    context: typer.Context,
    *,
    host: Annotated[str, typer.Option("--host", help="Where to listen.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0 takes any free one.")
    ] = 8081,
    data: Annotated[
        Path | None, typer.Option("--data", help="A directory that keeps everything.")
    ] = None,
    key: Annotated[
        str,
        typer.Option(
            "--key",
            show_default="the development key",
            help="The master key, in base64.",
        ),
    ] = DEVELOPMENT_KEY,
    tls: Annotated[
        bool, typer.Option("--tls", help="https, with a certificate of its own.")
    ] = False,
    split_at_items: Annotated[
        int | None,
        typer.Option("--split-at-items", min=2, help="Split a range that has more items."),
    ] = None,
    seed: Annotated[
        Path | None,
        typer.Option("--seed", help="JSON, or a directory of it, that fills an empty account."),
    ] = None,
    fault_seed: Annotated[
        int | None, typer.Option("--fault-seed", help="Seed for random faults.")
    ] = None,
    lenient: Annotated[
        bool,
        typer.Option("--lenient", help="Serve queries that an account leaves to clients."),
    ] = False,
    query_seconds: Annotated[
        float,
        typer.Option("--query-seconds", min=0.1, help="How long a page of a query may take."),
    ] = 10.0,
    host_name: Annotated[
        list[str] | None,
        typer.Option("--host-name", help="Another name that it answers to; may be repeated."),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option("--cors", help="An origin whose pages may ask, or *; may be repeated."),
    ] = None,
    region: Annotated[
        list[str] | None,
        typer.Option(
            "--region",
            metavar="NAME[:lag=SECONDS]",
            help="A region; the first one writes. Several have the ports behind --port.",
        ),
    ] = None,
    consistency: Annotated[
        str, typer.Option("--consistency", help="Strong … Eventual: the account's level.")
    ] = "Session",
    log_requests: Annotated[
        bool,
        typer.Option("--log-requests", help="A line of JSON on stderr for each request."),
    ] = False,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, allow_from_autoenv=False
        ),
    ] = False,
) -> None:
    """Serve the protocol of Azure Cosmos DB for NoSQL on this machine, until stopped.

    Without --data everything is kept in memory, and gone at the end. Ends with 0 on SIGTERM or
    Ctrl-C.
    """
    if context.invoked_subcommand is not None:
        return
    if log_requests:
        _log_requests()
    try:
        regions = tuple(_region(x) for x in region or (USUAL_REGION,))
    except ValueError as error:
        _refuse(str(error), error)
    settings = EmulatorSettings(
        host=host,
        port=port,
        data=None if data is None else data.expanduser(),
        key=key,
        tls=tls,
        split_at_items=split_at_items,
        seed=seed,
        fault_seed=fault_seed,
        lenient=lenient,
        query_seconds=query_seconds,
        host_names=tuple(host_name or ()),
        cors=tuple(cors or ()),
        regions=regions,
        consistency=consistency,
    )
    try:
        asyncio.run(_serve_until_stopped(settings))
    except (ValueError, RuntimeError, DirectoryInUse) as error:
        _refuse(str(error), error)
    except OSError as error:
        _refuse(_advice(settings, error), error)


def _region(text: str) -> RegionSettings:
    """Read ``East US:lag=2s``; ``ValueError`` for what is none."""
    name, colon, lag = text.partition(":")
    found = re.fullmatch(r"lag=(\d+(?:\.\d+)?)(s|ms)?", lag)
    if not colon:
        return RegionSettings(name=name)
    if found is None:
        raise ValueError(f"{text!r} is no region: it is a name, or a name and :lag=2s.")
    return RegionSettings(name=name, lag=float(found[1]) / (1000 if found[2] == "ms" else 1))


def trust(
    url: Annotated[
        str, typer.Argument(help="Where the emulator serves.")
    ] = "https://localhost:8081/",
) -> None:
    """Print for each language how its client takes the certificate of --tls."""
    typer.echo(advice_on_trust(url))


_File = Annotated[Path, typer.Argument(help="The file that keeps the account.")]
_Url = Annotated[str, typer.Option("--url", help="Where the emulator serves.")]
_Key = Annotated[
    str, typer.Option("--key", show_default="the development key", help="Its master key.")
]


def export(file: _File, url: _Url = _HERE, key: _Key = DEVELOPMENT_KEY) -> None:
    """Write a whole account to a file: items, feeds, etags, users, everything."""
    from cosmos_emulator.testing import Account  # noqa: PLC0415 - help needs no server

    with _refusing():
        file.write_bytes(Account(url=url, key=key).exported())


def import_(file: _File, url: _Url = _HERE, key: _Key = DEVELOPMENT_KEY) -> None:
    """Put an account that was exported in the place of what the emulator holds."""
    from cosmos_emulator.testing import Account  # noqa: PLC0415 - likewise

    with _refusing():
        Account(url=url, key=key).imported(file.read_bytes())


@contextmanager
def _refusing() -> Iterator[None]:
    """End with 2 and advice where an emulator, or a file, cannot be used."""
    try:
        yield
    except (ValueError, OSError) as error:
        _refuse(str(error), error)


def _log_requests() -> None:
    log = logging.getLogger("emulator.requests")
    log.addHandler(logging.StreamHandler())
    log.setLevel(logging.INFO)
    log.propagate = False


async def _serve_until_stopped(settings: EmulatorSettings) -> None:
    from cosmos_emulator.server import serve  # noqa: PLC0415 - help needs no server

    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(*_COLLECTED)
    serving = asyncio.create_task(serve(settings, ready=_say_ready))
    loop = asyncio.get_running_loop()
    stopping = [signal.SIGTERM, signal.SIGINT]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup has it
        stopping.append(signal.SIGHUP)
    for number in stopping:
        loop.add_signal_handler(number, serving.cancel)
    await asyncio.wait({serving})
    if not serving.cancelled():
        serving.result()


def _say_ready(url: str) -> None:
    try:
        typer.echo(f"serving Cosmos DB at {url}")
    except OSError:  # nobody reads it, or there is no room: it serves nevertheless
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _refuse(text: str, cause: Exception) -> NoReturn:
    typer.echo(f"cosmos-emulator: {text}", err=True)
    raise typer.Exit(_REFUSED) from cause


def _advice(settings: EmulatorSettings, error: OSError) -> str:
    """Say whether the address or the directory cannot be used."""
    if error.errno == errno.EADDRINUSE:
        ports = f"port {settings.port}"
        if len(settings.regions) > 1:
            ports = (
                f"one of the ports {settings.port} to {settings.port + len(settings.regions)}"
            )
        return (
            f"{ports} is taken, perhaps by another emulator; stop that one, or choose another "
            f"port with --port (0 for any that is free)"
        )
    from cosmos_emulator.server import host_and_port  # noqa: PLC0415 - as above

    if error.filename is not None:
        return f"{error.filename} cannot be used: {error.strerror}"
    number = error.errno or 0
    reason = os.strerror(number) if number > 0 else error.strerror  # a name's has its own
    return f"cannot listen at {host_and_port(settings.host, settings.port)}: {reason}"

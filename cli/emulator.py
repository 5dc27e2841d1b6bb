"""``changefeed emulator``: a local Cosmos DB endpoint, to develop and to test against."""

import asyncio
import errno
from pathlib import Path
from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.io.report import say
from changefeed.emulator import DEVELOPMENT_KEY, DirectoryInUse, EmulatorSettings, serve
from changefeed.runtime.errors import UserError
from changefeed.runtime.paths import expanded
from changefeed.runtime.signals import on_stop_signals
from changefeed.runtime.web_server import host_and_port


def emulator(
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
            envvar="CHANGEFEED_EMULATOR_KEY",
            show_default="the development key",
            show_envvar=True,
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
        int | None, typer.Option("--seed", help="Makes faults by chance strike alike.")
    ] = None,
) -> None:
    """Serve the protocol of Azure Cosmos DB on this machine, until stopped.

    Without --data everything is kept in memory, and gone at the end. Point hosts at it
    with cosmos+http://127.0.0.1:8081/DATABASE/CONTAINER; the development key is known to
    them. Ends with 0 on SIGTERM or Ctrl-C.
    """
    with exit_on_error():
        settings = EmulatorSettings(
            host=host,
            port=port,
            data=None if data is None else expanded(data),
            key=key,
            tls=tls,
            split_at_items=split_at_items,
            seed=seed,
        )
        try:
            asyncio.run(_serve_until_stopped(settings))
        except (ValueError, RuntimeError, DirectoryInUse) as error:
            raise UserError(str(error)) from error
        except OSError as error:
            raise _unusable(settings, error) from error


async def _serve_until_stopped(settings: EmulatorSettings) -> None:
    serving = asyncio.create_task(serve(settings, ready=_say_ready))
    with on_stop_signals(serving.cancel):
        await asyncio.wait({serving})
    if not serving.cancelled():
        serving.result()


def _say_ready(url: str) -> None:
    say(f"serving Cosmos DB at {url}")


def _unusable(settings: EmulatorSettings, error: OSError) -> Exception:
    """Say whether it was the address or the directory that cannot be used."""
    if error.errno == errno.EADDRINUSE:
        return UserError(
            f"port {settings.port} is taken, perhaps by another emulator; stop that, or "
            "take another one with --port (0 for any that is free)"
        )
    if error.errno in (errno.EADDRNOTAVAIL, errno.EACCES) or error.filename is None:
        return UserError(
            f"cannot listen at {host_and_port(settings.host, settings.port)}: "
            f"{error.strerror or error}"
        )
    return UserError(f"{error.filename} cannot be used: {error.strerror}")

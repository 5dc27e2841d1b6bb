"""``changefeed pipeline submit``: a pipeline on a cluster."""

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.pipeline.flags import FROM_LEASES, START
from changefeed.pipeline.settings import load_settings
from changefeed.pipeline.submit import command


def submit(
    context: typer.Context,
    *,
    config: Annotated[Path, typer.Option("--config", help="The settings to submit.")],
    master: Annotated[str, typer.Option("--master", help="The cluster, as for spark-submit.")],
    what: Annotated[
        str, typer.Option("--command", help="What it does: run, once or observe.")
    ] = "run",
    into: Annotated[
        Path, typer.Option("--into", help="The folder to write the program to.")
    ] = Path("changefeed-submit"),
    python: Annotated[
        str | None, typer.Option("--python", help="The Python of the executors.")
    ] = None,
    start: Annotated[str | None, START] = None,
    from_leases: Annotated[str | None, FROM_LEASES] = None,
    runs: Annotated[
        bool, typer.Option("--run", help="Run the command instead of printing it.")
    ] = False,
) -> None:
    """Write what spark-submit needs, and print its command line; it runs in client mode.

    What is not known here is passed on to spark-submit: --executor-memory=4g, --archives, ….
    """
    with exit_on_error():
        settings = load_settings(config, {} if start is None else {"start": start})
        line = command(
            settings,
            config.absolute(),
            directory=into.absolute(),
            master=master,
            what=what,
            python=python,
            further=context.args,
            start=[
                *([] if start is None else [f"--start={start}"]),
                *([] if from_leases is None else [f"--from-leases={from_leases}"]),
            ],
        )
        if runs:
            os.execvp(line[0], line)  # noqa: S606 - without a shell, and what was just built
        typer.echo(shlex.join(line))

"""The command line: ``python -m benchmarks [NAME...]``, which is ``make bench``.

Ends with 0 whether goals are met or not: a goal missed on a busy machine is no failure.
Ends with 2 for a name that is none.
"""

import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from .registry import BENCHMARKS
from .report import LATEST, machine, table, write
from .result import Result

_WIDTH_OF_A_FILE = 132


def main(
    names: Annotated[
        list[str] | None, typer.Argument(help="Which to run; all, if none is named.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write the results as JSON.")] = LATEST,
) -> None:
    """Measure, show a table, and write the same as JSON."""
    chosen = names or list(BENCHMARKS)
    unknown = [x for x in chosen if x not in BENCHMARKS]
    if unknown:
        known = ", ".join(BENCHMARKS)
        raise typer.BadParameter(f"there is no benchmark {unknown[0]!r}; there are: {known}")
    # Hosts in this process would tell each step of theirs between the tables.
    logging.getLogger("changefeed").setLevel(logging.WARNING)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH_OF_A_FILE)
    machine(console)
    results: list[Result] = []
    for name in chosen:
        benchmark = BENCHMARKS[name]
        with console.status(f"{name}: {benchmark.about}"):
            began = time.perf_counter()
            measured = benchmark.measure()
            seconds = time.perf_counter() - began
        console.print(table(name, benchmark.about, measured, seconds))
        results += measured
        write(results, out)  # what is done is kept, should a later one fail
    console.print(_goals(results), highlight=False)


def _goals(results: Sequence[Result]) -> str:
    goals = [x.goal for x in results if x.goal is not None]
    return f"{sum(x.met for x in goals)} of {len(goals)} goals met"


if __name__ == "__main__":
    typer.run(main)

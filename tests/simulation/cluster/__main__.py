"""Live through many seeds of a cluster: ``python -m tests.simulation.cluster --seeds 1000``.

``--seed 7`` tells the story of one. Exit code 1 if any of them violates an invariant.
"""

import gc
import logging
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated

import typer

from .checker import Violation
from .world import Outcome, simulate


def _quietly() -> None:
    logging.disable(logging.CRITICAL)
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def _try(seed: int) -> Outcome | str:
    try:
        return simulate(seed)
    except Violation as violation:
        return str(violation).rpartition("\n")[2]


def main(
    *,
    seeds: Annotated[int, typer.Option(help="How many to live through.")] = 100,
    first: Annotated[int, typer.Option(help="The first of them.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Only this one, with its story.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = os.cpu_count() or 1,
) -> None:
    if seed is not None:
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
        typer.echo("\n".join(simulate(seed).story))
        return
    began, bad, lived = time.monotonic(), 0, []
    numbers = range(first, first + seeds)
    with ProcessPoolExecutor(jobs, initializer=_quietly) as pool:
        for number, outcome in zip(numbers, pool.map(_try, numbers, chunksize=2), strict=True):
            if isinstance(outcome, Outcome):
                lived.append(outcome)
            else:
                bad += 1
                typer.echo(f"seed {number}: {outcome}")
    typer.echo(
        f"{seeds:,} seeds, {bad} violations; {sum(x.records for x in lived):,} records, "
        f"{sum(x.eras for x in lived):,} eras, {sum(x.catalogs for x in lived):,} catalogs, "
        f"{sum(x.segments for x in lived):,} segments, "
        f"{sum(x.seconds for x in lived) / 3600:,.0f} virtual hours in "
        f"{time.monotonic() - began:,.0f} s"
    )
    if bad:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)

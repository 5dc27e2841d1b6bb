"""Live through many seeds: ``make simulate SEEDS=10000``, or one: ``make simulate SEED=7``.

Exit code 1 if any of them violates an invariant; each is printed with its story and the
command that tells it again.
"""

import logging
import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import islice
from typing import Annotated

import structlog
import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from .checkers import Violation
from .world import Outcome, simulate

_CHUNK = 5
_out = Console()


def _quietly() -> None:
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))


def _live_through(seeds: list[int]) -> tuple[list[Outcome], list[str]]:
    lived, violations = [], []
    for seed in seeds:
        try:
            lived.append(simulate(seed))
        except Violation as violation:
            violations.append(str(violation))
        except Exception as error:  # noqa: BLE001 - a seed that breaks the story is a find, too
            violations.append(f"seed {seed}: {type(error).__name__}: {error}")
    return lived, violations


def _one(seed: int) -> None:
    """Tell the story of one seed, with the log of its hosts."""
    try:
        outcome = simulate(seed)
    except Violation as violation:
        _out.print(str(violation), style="red", markup=False)
        raise typer.Exit(1) from None
    _out.print("\n".join(outcome.story), markup=False)
    _out.print(
        f"seed {seed} holds: {outcome.events:,} events, "
        f"{outcome.deliveries:,} deliveries, {outcome.duplicates:,} duplicates"
    )


def _many(seeds: Iterator[list[int]], jobs: int, seconds: float | None) -> None:
    began = time.monotonic()
    lived: list[Outcome] = []
    violations: list[str] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with (
        ProcessPoolExecutor(jobs, initializer=_quietly) as pool,
        Progress(*columns, console=_out, transient=True) as progress,
    ):
        bar = progress.add_task("seeds")
        running: set[Future[tuple[list[Outcome], list[str]]]] = {
            pool.submit(_live_through, x) for x in islice(seeds, 2 * jobs)
        }
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                outcomes, found = future.result()
                lived += outcomes
                violations += found
                for text in found:
                    _tell(text)
            in_time = seconds is None or time.monotonic() - began < seconds
            if in_time:
                running |= {pool.submit(_live_through, x) for x in islice(seeds, len(done))}
            progress.update(bar, description=f"{len(lived):,} seeds, {len(violations)} bad")
    _sum_up(lived, violations, time.monotonic() - began)


def _tell(violation: str) -> None:
    seed = violation.removeprefix("seed ").split(":")[0]
    _out.print(violation, style="red", markup=False)
    _out.print(f"again: make simulate SEED={seed}", markup=False)


def _sum_up(lived: list[Outcome], violations: list[str], seconds: float) -> None:
    hours = sum(x.hours for x in lived)
    _out.print(
        f"{len(lived) + len(violations):,} seeds, {len(violations)} violations; "
        f"{sum(x.events for x in lived):,} events, "
        f"{sum(x.deliveries for x in lived):,} deliveries; "
        f"{hours:,.0f} virtual hours in {seconds:,.0f} s: {hours / seconds:.2f} h/s"
    )
    if violations:
        raise typer.Exit(1)


def main(
    seeds: Annotated[int, typer.Option(help="How many to live through.")] = 200,
    first: Annotated[int, typer.Option(help="The first of them.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Only this one, with its story.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Start no seed after so many seconds.")
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = os.cpu_count() or 1,
) -> None:
    if seed is not None:
        _one(seed)
        return
    starts = range(first, first + seeds, _CHUNK)
    chunks = (list(range(x, min(x + _CHUNK, first + seeds))) for x in starts)
    _many(chunks, jobs, seconds)


if __name__ == "__main__":
    typer.run(main)

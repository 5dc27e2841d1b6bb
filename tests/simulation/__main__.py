"""Live through many seeds: ``make simulate SEEDS=10000``, or one: ``make simulate SEED=7``.

A seed says what happens; in which world (over which feed, in which lease container, and whether
people interfere), is said apart: many seeds are lived through in a mixture of worlds.

Exit code 1 if any of them violates an invariant; each is printed with its story and the
command that tells it again.
"""

import gc
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Annotated

import typer
from opentelemetry import metrics
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from .checkers import Violation
from .mixture import MIXTURE, WorldKind
from .outcome import Outcome
from .renewals import Kind
from .sources import FeedKind
from .stores import StoreKind

_CHUNK = 5
_out = Console()


def _quietly() -> None:
    """Prepare a process that only lives through seeds."""
    logging.disable(logging.CRITICAL)
    metrics.set_meter_provider(metrics.NoOpMeterProvider())  # without one, each meter is kept
    gc.freeze()  # what was imported stays
    gc.set_threshold(20_000, 10, 10)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A seed that does not hold."""

    seed: int
    kind: WorldKind
    text: str


def _live_through(seeds: range, kind: WorldKind) -> tuple[list[Outcome], list[_Found]]:
    lived, violations = [], []
    for seed in seeds:
        try:
            lived.append(kind.live(seed))
        except Violation as violation:
            violations.append(_Found(seed=seed, kind=kind, text=str(violation)))
        except Exception as error:  # noqa: BLE001 - a seed that breaks the story is a find, too
            text = f"{type(error).__name__}: {error}"
            violations.append(_Found(seed=seed, kind=kind, text=text))
    return lived, violations


def _one(seed: int, kind: WorldKind) -> None:
    """Tell the story of one seed, with the log of its hosts."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        outcome = kind.live(seed)
    except Violation as violation:
        _out.print(str(violation), style="red", markup=False)
        raise typer.Exit(1) from None
    _out.print("\n".join(outcome.story), markup=False)
    _out.print(
        f"seed {seed} holds: {outcome.events:,} events, "
        f"{outcome.deliveries:,} deliveries, {outcome.duplicates:,} duplicates, "
        f"{outcome.stale_reads:,} stale reads"
    )


def _many(chunks: Iterator[tuple[range, WorldKind]], jobs: int, seconds: float | None) -> None:
    began = time.monotonic()
    lived: list[Outcome] = []
    violations: list[_Found] = []
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with (
        ProcessPoolExecutor(jobs, initializer=_quietly) as pool,
        Progress(*columns, console=_out, transient=True) as progress,
    ):
        bar = progress.add_task("seeds")
        running: set[Future[tuple[list[Outcome], list[_Found]]]] = {
            pool.submit(_live_through, *x) for x in islice(chunks, 2 * jobs)
        }
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                outcomes, found = future.result()
                lived += outcomes
                violations += found
                for one in found:
                    _tell(one)
            in_time = seconds is None or time.monotonic() - began < seconds
            if in_time:
                running |= {pool.submit(_live_through, *x) for x in islice(chunks, len(done))}
            progress.update(bar, description=f"{len(lived):,} seeds, {len(violations)} bad")
    _sum_up(lived, violations, time.monotonic() - began)


def _tell(found: _Found) -> None:
    _out.print(f"seed {found.seed}: {found.text}", style="red", markup=False)
    again = f"again: make simulate SEED={found.seed} ARGS='{found.kind.flags}'"
    _out.print(again, markup=False)


def _sum_up(lived: list[Outcome], violations: list[_Found], seconds: float) -> None:
    hours = sum(x.hours for x in lived)
    feeds = Counter([*(x.feed for x in lived), *(x.kind.feed for x in violations)])
    by_feed = ", ".join(f"{n:,} over {feed}" for feed, n in feeds.items())
    _out.print(
        f"{len(lived) + len(violations):,} seeds ({by_feed}), {len(violations)} violations; "
        f"{sum(x.events for x in lived):,} events, "
        f"{sum(x.deliveries for x in lived):,} deliveries; "
        f"{hours:,.0f} virtual hours in {seconds:,.0f} s: {hours / seconds:.2f} h/s"
    )
    if violations:
        raise typer.Exit(1)


def main(
    *,
    seeds: Annotated[int, typer.Option(help="How many to live through.")] = 200,
    first: Annotated[int, typer.Option(help="The first of them.")] = 0,
    seed: Annotated[int | None, typer.Option(help="Only this one, with its story.")] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Start no seed after so many seconds.")
    ] = None,
    feed: Annotated[
        FeedKind | None, typer.Option(help="Over this feed only; for one seed, memory.")
    ] = None,
    leases: Annotated[
        StoreKind | None, typer.Option(help="In this container only; for one seed, memory.")
    ] = None,
    wild: Annotated[
        bool | None,
        typer.Option(
            "--wild/--calm", help="With people who interfere; both kinds, if not said."
        ),
    ] = None,
    mixed: Annotated[
        bool,
        typer.Option("--mixed", help="With hosts of another kind, over Cosmos DB only."),
    ] = False,
    renewal: Annotated[
        Kind | None, typer.Option(help="What keeps all leases; as the seed says, if not said.")
    ] = None,
    splits: Annotated[
        bool,
        typer.Option("--splits", help="People split and merge ranges that the feed has not."),
    ] = False,
    troubled: Annotated[
        bool | None,
        typer.Option(
            "--troubled/--untroubled",
            help="With troubles beside the events; half of them, if not said.",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = os.cpu_count() or 1,
) -> None:
    if mixed:
        feed = leases = "cosmos"
    if seed is not None:
        _one(
            seed,
            WorldKind(
                feed=feed or "memory",
                leases=leases or "memory",
                wild=wild or False,
                mixed=mixed,
                renewal=renewal,
                splits=splits,
                troubled=troubled or False,
            ),
        )
        return
    starts = range(first, first + seeds, _CHUNK)
    chunks = (range(x, min(x + _CHUNK, first + seeds)) for x in starts)
    said = feed or leases
    kinds = (
        WorldKind(
            feed=feed or kind.feed,
            leases=leases or kind.leases,
            wild=kind.wild if wild is None else wild,
            mixed=mixed or (kind.mixed and not said),
            renewal=renewal,
            splits=splits or (kind.splits and not (said or mixed)),
            troubled=kind.troubled if troubled is None else troubled,
        )
        for kind in cycle(MIXTURE)
    )
    _many(zip(chunks, kinds, strict=False), jobs, seconds)


if __name__ == "__main__":
    typer.run(main)

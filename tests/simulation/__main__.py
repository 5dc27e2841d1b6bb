"""Live through many seeds: ``make simulate SEEDS=10000``, or one: ``make simulate SEED=7``.

A seed says what happens; in which world (of brokers; or of hosts, over which feed, in which
lease container, and whether people interfere), is said apart: many seeds are lived through in a
mixture of worlds.

The first 600 seeds are *pinned*: CI lives through them at each change, as far as it has time,
and the telling ones first, which must hit every probe. ``--first today`` are fresh ones: a day
has the 100,000 seeds from its number on.

Exit code 1 if a seed violates an invariant (it is printed with its story and the command that
tells it again), or if the pinned seeds leave out a probe.
"""

import gc
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import cycle, islice
from typing import Annotated

import typer
from opentelemetry import metrics
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from .mixture import HOSTS, MIXTURE, AnyKind, BrokersKind, live
from .outcome import Outcome
from .pinned import SEEDS, TELLING
from .probes import ALL_PROBES, Probes
from .progress import Violation
from .sources import FeedKind
from .stores import StoreKind
from .world import WorldKind

_CHUNK = 2
_A_DAY = 100_000
_EPOCH = date(2026, 1, 1)
_out = Console()


def seeds_of(day: date) -> int:
    """Return the first of the seeds of a day, which no other day has."""
    return (day - _EPOCH).days * _A_DAY


def _first(said: str) -> int:
    return seeds_of(datetime.now(UTC).date()) if said == "today" else int(said)


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
    kind: AnyKind
    text: str


def _live_through(seeds: range, kind: AnyKind) -> tuple[list[Outcome], list[_Found]]:
    lived, violations = [], []
    for seed in seeds:
        try:
            lived.append(live(seed, kind))
        except Violation as violation:
            violations.append(_Found(seed=seed, kind=kind, text=str(violation)))
        except Exception as error:  # noqa: BLE001 - a seed that breaks the story is a find, too
            text = f"{type(error).__name__}: {error}"
            violations.append(_Found(seed=seed, kind=kind, text=text))
    return lived, violations


def _one(seed: int, kind: AnyKind) -> None:
    """Tell the story of one seed, with the log of its hosts or brokers."""
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    try:
        outcome = live(seed, kind)
    except Violation as violation:
        _out.print(str(violation), style="red", markup=False)
        raise typer.Exit(1) from None
    _out.print("\n".join(outcome.story), markup=False)
    _out.print(
        f"seed {seed} holds: {outcome.events:,} events, "
        f"{outcome.deliveries:,} deliveries, {outcome.duplicates:,} duplicates"
    )


def _many(
    chunks: Iterator[tuple[range, AnyKind]], jobs: int, in_time: Callable[[], bool]
) -> tuple[list[Outcome], list[_Found]]:
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
            if in_time():
                running |= {pool.submit(_live_through, *x) for x in islice(chunks, len(done))}
            progress.update(bar, description=f"{len(lived):,} seeds, {len(violations)} bad")
    return lived, violations


def _tell(found: _Found) -> None:
    _out.print(f"seed {found.seed}: {found.text}", style="red", markup=False)
    again = f"again: make simulate SEED={found.seed} ARGS='{found.kind.flags}'"
    _out.print(again, markup=False)


def _sum_up(lived: list[Outcome], violations: list[_Found], seconds: float) -> None:
    hours = sum(x.hours for x in lived)
    worlds = ", ".join(f"{n:,} {world}" for world, n in Counter(x.feed for x in lived).items())
    _out.print(
        f"{len(lived) + len(violations):,} seeds ({worlds}), {len(violations)} violations; "
        f"{sum(x.events for x in lived):,} events, "
        f"{sum(x.deliveries for x in lived):,} deliveries; "
        f"{hours:,.0f} virtual hours in {seconds:,.0f} s: {hours / seconds:.2f} h/s"
    )


def _show_probes(lived: list[Outcome]) -> list[str]:
    """Print how often each probe was hit; return those that never were."""
    hits = Probes()
    for outcome in lived:
        hits.update(outcome.probes)
    for probe in ALL_PROBES:
        _out.print(f"{hits[probe]:>9,}  {probe}", style=None if hits[probe] else "red")
    return [x for x in ALL_PROBES if not hits[x]]


def main(
    *,
    seeds: Annotated[int, typer.Option(help="How many to live through.")] = 200,
    first: Annotated[
        int, typer.Option(parser=_first, help="The first of them; `today` for fresh ones.")
    ] = 0,
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
    aimed: Annotated[
        bool, typer.Option("--aimed", help="With events that are aimed at what seldom meets.")
    ] = False,
    brokers: Annotated[
        bool, typer.Option("--brokers", help="Brokers only, and no hosts.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Processes.")] = os.cpu_count() or 1,
) -> None:
    if mixed:
        feed = leases = "cosmos"
    said = feed or leases

    def narrowed(kind: WorldKind) -> WorldKind:
        return WorldKind(
            feed=feed or kind.feed,
            leases=leases or kind.leases,
            wild=kind.wild if wild is None else wild,
            mixed=mixed or (kind.mixed and not said),
            splits=splits or (kind.splits and not (said or mixed)),
            troubled=kind.troubled if troubled is None else troubled,
            aimed=aimed or kind.aimed,
        )

    if seed is not None:
        _one(seed, BrokersKind() if brokers else narrowed(WorldKind()))
        return
    some = [BrokersKind()] if brokers else list(map(narrowed, HOSTS))
    kinds = MIXTURE if some == HOSTS else some
    _seeds_of(range(first, first + seeds), kinds, jobs, seconds)


def _seeds_of(seeds: range, kinds: Sequence[AnyKind], jobs: int, seconds: float | None) -> None:
    """Live through them in these kinds of worlds, and judge what came of it."""
    chunks = [seeds[x : x + _CHUNK] for x in range(0, len(seeds), _CHUNK)]
    worlds = [*zip(chunks, cycle(kinds), strict=False)]
    pinned = kinds is MIXTURE and seeds.start == 0 and len(seeds) >= SEEDS
    if pinned:
        worlds.sort(key=lambda x: TELLING.isdisjoint(x[0]))
    began = time.monotonic()

    def in_time() -> bool:
        return seconds is None or time.monotonic() - began < seconds

    lived, violations = _many(iter(worlds), jobs, in_time)
    _sum_up(lived, violations, time.monotonic() - began)
    missed = _show_probes(lived)
    known = {x.seed for x in lived} | {x.seed for x in violations}
    judged = pinned and known >= TELLING
    if judged and missed:
        _out.print(f"{len(missed)} probes were never hit by the pinned seeds", style="red")
    elif pinned and missed:
        _out.print("the telling seeds were not all lived through: probes are not judged")
    if violations or (judged and missed):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)

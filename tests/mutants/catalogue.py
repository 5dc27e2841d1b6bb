"""The list of mutants, each of which the tests that it names must notice."""

from collections.abc import Sequence
from functools import partial

import pytest
import typer

from . import bordering, delivering, expiring, fencing, handling, planning
from .forks import Lost, NotFit, Run, Task, forked, in_pieces, run
from .mutant import Mutant, Patch

_PATIENCE = 15

MUTANTS: tuple[Mutant, ...] = tuple(
    mutant
    for part in (expiring, planning, fencing, handling, delivering, bordering)
    for mutant in vars(part).values()
    if isinstance(mutant, Mutant)
)


def tried(mutants: Sequence[Mutant], items: Sequence[pytest.Item]) -> list[Mutant]:
    """Try mutants on the tests that they name, and tell of each; return what survived."""
    chosen = {x.name: _named(items, x) for x in mutants}
    needed = {test.nodeid for tests in chosen.values() for test in tests}
    for test in in_pieces([x for x in items if x.nodeid in needed], run):
        if test.failed:
            raise NotFit(f"the unbroken code fails {test.test}:\n{test.text}")
    tasks = (Task(x, partial(_broken, x, chosen[x.name])) for x in mutants)
    survivors = []
    for mutant, answer in forked(tasks, patience=_PATIENCE):
        killer = answer.why if isinstance(answer, Lost) else _killer(answer)
        typer.echo(f"{mutant.rule:2} {mutant.name}: {killer or 'SURVIVED'}")
        if killer is None:
            survivors.append(mutant)
    return survivors


def _named(items: Sequence[pytest.Item], mutant: Mutant) -> list[pytest.Item]:
    for place in mutant.places:
        if not any(x.nodeid.startswith(place) for x in items):
            raise NotFit(f"mutant {mutant.name!r}: there is no test {place}")
    return [x for x in items if x.nodeid.startswith(mutant.places)]


def _broken(mutant: Mutant, items: Sequence[pytest.Item]) -> list[Run]:
    mutant.apply(Patch())
    return run(items)


def _killer(runs: Sequence[Run]) -> str | None:
    return next((x.test for x in runs if x.failed), None)

"""Break the code on purpose: ``make mutants``, or by rule, ``make mutants PATHS=host``.

Exit code 1 if a mutant of the list survives, 2 if that cannot be found out: what a mutant
breaks is gone, or tests fail on the unbroken code.
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import pytest
import typer

from . import catalogue, covering
from .forks import NotFit, with_tests
from .generated import Edit, drawn
from .mutant import Mutant

_TESTS = ("tests/unit", "tests/contract")


def main(
    paths: Annotated[list[Path] | None, typer.Argument(help="Break these by rule.")] = None,
    count: Annotated[int, typer.Option(help="How many such breaks.")] = 50,
    seed: Annotated[int, typer.Option(help="Which ones.")] = 1,
    tests: Annotated[list[str] | None, typer.Option(help="The tests to run on them.")] = None,
    only: Annotated[str, typer.Option(help="Of the list, those with this in the name.")] = "",
) -> None:
    try:
        if paths:
            files = [
                x for path in paths for x in ([path] if path.is_file() else path.rglob("*.py"))
            ]
            edits = drawn(files, count, seed)
            with_tests(tests or _TESTS, partial(_try_edits, edits))
        else:
            mutants = [x for x in catalogue.MUTANTS if only in x.name]
            places = {x.partition("::")[0] for mutant in mutants for x in mutant.places}
            with_tests(sorted(places), partial(_try_mutants, mutants))
    except NotFit as problem:
        typer.echo(problem)
        raise typer.Exit(2) from None


def _try_mutants(mutants: Sequence[Mutant], items: Sequence[pytest.Item]) -> None:
    began = time.monotonic()
    survivors = catalogue.tried(mutants, items)
    seconds = time.monotonic() - began
    typer.echo(f"{len(mutants)} mutants, {len(survivors)} survived; {seconds:.0f} s")
    if survivors:
        raise typer.Exit(1)


def _try_edits(edits: Sequence[Edit], items: Sequence[pytest.Item]) -> None:
    survivors = covering.tried(edits, items)
    typer.echo(f"{len(edits)} mutants, {len(survivors)} survived")
    for edit in sorted(survivors, key=str):
        typer.echo(f"  {edit}")


if __name__ == "__main__":
    typer.run(main)

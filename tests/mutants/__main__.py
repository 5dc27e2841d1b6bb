"""Break the code on purpose, again and again: ``make mutants``, or some by their names.

Exit code 1 if a mutant survives, 2 if the list cannot be run: a mutant whose code has
changed, or tests that fail on the unbroken code.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from .catalogue import MUTANTS
from .mutant import Stale
from .running import NotFit, Verdict, verdicts

_WIDTH = 140
_out = Console(width=max(_WIDTH, Console().width))


def main(
    names: Annotated[list[str] | None, typer.Argument(help="Only these mutants.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes.")] = os.cpu_count() or 1,
) -> None:
    chosen = [x for x in MUTANTS if not names or x.name in names]
    if not chosen:
        _out.print(f"there is no mutant {' '.join(names or ())}", markup=False)
        raise typer.Exit(2)
    began = time.monotonic()
    found: list[Verdict] = []
    try:
        with (
            tempfile.TemporaryDirectory(prefix="mutants-") as folder,
            Progress(console=_out, transient=True) as progress,
        ):
            bar = progress.add_task("mutants", total=len(chosen))
            for verdict in verdicts(chosen, Path(folder).resolve(), jobs):
                found.append(verdict)
                progress.update(bar, advance=1)
                if verdict.killer is None:  # a list takes half an hour: not only at its end
                    _out.print(f"survived: {verdict.mutant.name}", style="red", markup=False)
    except (Stale, NotFit) as problem:
        _out.print(f"{len(found)} of {len(chosen)} mutants were tried")
        _out.print(str(problem), style="red", markup=False)
        raise typer.Exit(2) from None
    _show(sorted(found, key=lambda x: chosen.index(x.mutant)), time.monotonic() - began)


def _show(found: list[Verdict], seconds: float) -> None:
    table = Table("mutant", "in", "rule", "killed by", "s", box=None)
    for verdict in found:
        killer, style = verdict.killer or "none: it survived", "" if verdict.killer else "red"
        mutant = verdict.mutant
        row = (mutant.name, mutant.file, str(mutant.rule), killer, f"{verdict.seconds:.1f}")
        table.add_row(*row, style=style)
    _out.print(table)
    survivors = [x.mutant.name for x in found if x.killer is None]
    _out.print(f"{len(found)} mutants, {len(survivors)} survived; {seconds:.0f} s")
    if survivors:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)

"""Results for people, as a table, and for programs, as JSON."""

import os
import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from .result import Goal, Result

LATEST = Path(__file__).with_name("latest.json")
_QUIET = 3.0
"""The load above which others have had a part in what was measured."""


def write(results: Sequence[Result], path: Path) -> None:
    """Write what this run has measured, in place of what an earlier one had."""
    text = msgspec.json.format(msgspec.json.encode([x.as_json() for x in results]))
    path.write_bytes(text + b"\n")


def table(name: str, about: str, results: Sequence[Result], seconds: float) -> Table:
    load = os.getloadavg()[0]
    quiet = "quiet" if load <= _QUIET else f"not quiet, which is {_QUIET:g} at most"
    made = Table(
        title=f"{name}: {about}",
        title_justify="left",
        caption=f"{seconds:.1f} s, load {load:.1f}: {quiet}",
        caption_justify="left",
    )
    made.add_column("what", no_wrap=True)
    made.add_column("value", justify="right")
    made.add_column("unit")
    made.add_column("against")
    made.add_column("ratio", justify="right")
    made.add_column("goal")
    for x in results:
        ratio = "" if x.ratio is None else f"{x.ratio:.2f}"
        made.add_row(x.name, _number(x.value), x.unit, x.against or "", ratio, _goal(x.goal))
    return made


def machine(console: Console) -> None:
    cores, load = os.cpu_count(), os.getloadavg()[0]
    version = platform.python_version()
    console.print(f"{cores} cores, load {load:.1f}, Python {version}\n", highlight=False)


def _number(value: float) -> str:
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def _goal(goal: Goal | None) -> str:
    if goal is None:
        return ""
    return f"{goal.text} [green]met[/]" if goal.met else f"{goal.text} [bold red]not met[/]"

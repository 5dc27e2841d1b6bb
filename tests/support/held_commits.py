"""Holds a process in the moment after a commit of a Delta table, before Spark hears of it;
or just before that commit, when Spark has logged what the batch is.

``holding`` gives the environment for a driver: each of its Python processes imports
``sitecustomize`` when it starts, which calls ``install`` here.
"""

import importlib
import importlib.abc
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

_ROOT: Final = Path(__file__).parents[2]
_HOW, _TABLE, _COUNT = "TESTS_HOLD_HOW", "TESTS_HOLD_TABLE", "TESTS_HOLD_COUNT"
_EARLY = "TESTS_HOLD_EARLY"
APPENDED: Final = "DeltaTable.create_write_transaction"
MERGED: Final = "TableMerger.execute"


@dataclass(frozen=True, kw_only=True)
class Hold:
    """``table`` is held once it has ``count`` commits, of which ``how`` makes the last; if
    ``early``, before that one is made.
    """

    home: Path
    table: Path
    how: str
    count: int
    early: bool = False

    def environment(self) -> Mapping[str, str]:
        self.home.mkdir()
        program = "from tests.support.held_commits import install\n\ninstall()\n"
        (self.home / "sitecustomize.py").write_text(program)
        return {
            **os.environ,
            "PYTHONPATH": f"{self.home}:{_ROOT}",
            _HOW: self.how,
            _TABLE: str(self.table),
            _COUNT: str(self.count),
            _EARLY: "1" if self.early else "",
        }

    def held(self) -> bool:
        return _flag(self.table).exists()

    def release(self) -> None:
        _flag(self.table).unlink()


def commits(table: Path) -> int:
    """Return how many commits a table has, that of its making included."""
    return len([*(table / "_delta_log").glob("[0-9]*.json")])


def install() -> None:
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Changes ``deltalake`` when it is imported, which few of the processes do."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname != "deltalake.table":
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        sys.meta_path.remove(self)
        module = importlib.import_module(spec.name)
        owner, _, method = os.environ[_HOW].partition(".")
        made = getattr(module, owner)
        setattr(made, method, _and_hold(getattr(made, method)))
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It was run already."""


def _and_hold(commit: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(commit)
    def committed(*given: Any, **named: Any) -> Any:
        if os.environ[_EARLY]:
            _hold_at(int(os.environ[_COUNT]) - 1)
        done = commit(*given, **named)
        if not os.environ[_EARLY]:
            _hold_at(int(os.environ[_COUNT]))
        return done

    return committed


def _hold_at(count: int) -> None:
    table = Path(os.environ[_TABLE])
    if commits(table) >= count:
        _flag(table).touch()
        while _flag(table).exists():
            time.sleep(0.05)


def _flag(table: Path) -> Path:
    return table.with_name(f"{table.name}.held")

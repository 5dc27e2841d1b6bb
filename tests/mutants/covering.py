"""Tries generated mutants on the tests that enter what they change: only those can notice."""

import os
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from types import FrameType

import pytest
import typer

from .forks import Lost, Run, Task, end_of_tests, forked, in_pieces, run, run_one
from .generated import Edit, Function, put_into_place

_PATIENCE = 30
_ROOT = Path(__file__).parents[2]

Covering = Mapping[Function, Sequence[Run]]
"""The tests that enter a function, and what became of them on the unbroken code."""


@dataclass(frozen=True, slots=True)
class Entered:
    """What became of a test of the unbroken code, and the functions that it entered."""

    run: Run
    functions: frozenset[Function]


def tried(edits: Sequence[Edit], items: Sequence[pytest.Item]) -> list[Edit]:
    """Try edits on the tests that enter them, and tell of each; return what survived."""
    by_name, covering = {x.nodeid: x for x in items}, _covering(items)
    tasks = (
        Task(x, partial(_edited, x, [by_name[name] for name in _nearest(x, covering)]))
        for x in edits
    )
    survivors = []
    for edit, answer in forked(tasks, patience=_PATIENCE):
        killed = isinstance(answer, Lost) or any(x.failed for x in answer)
        typer.echo(f"{'killed' if killed else 'SURVIVED'}: {edit}")
        if not killed:
            survivors.append(edit)
    return survivors


def entered(items: Sequence[pytest.Item], root: Path) -> list[Entered]:
    """Run tests in this child, and note which functions below ``root`` they enter."""
    watch, done = _Watch(f"{root}{os.sep}"), []
    for number, item in enumerate(items, 1):
        with watch:
            run = run_one(item, items[number] if number < len(items) else None)
        done.append(Entered(run, watch.functions()))
    end_of_tests(items)
    return done


def _covering(items: Sequence[pytest.Item]) -> Covering:
    found = defaultdict[Function, list[Run]](list)
    for test in in_pieces(items, partial(entered, root=_ROOT)):
        for function in () if test.run.failed else test.functions:
            found[function].append(test.run)
    return found


def _nearest(edit: Edit, covering: Covering) -> list[str]:
    """Return the tests that enter what is edited: those of its folder first, and the quick."""
    seconds = {x.test: x.seconds for f in edit.functions() for x in covering.get(f, ())}
    words = set(edit.path.with_suffix("").parts)

    def distance(test: str) -> tuple[int, float]:
        folders = test.partition("::")[0].removesuffix(".py").replace("/test_", "/").split("/")
        return -len(words.intersection(folders)), seconds[test]

    return sorted(seconds, key=distance)


def _edited(edit: Edit, items: Sequence[pytest.Item]) -> list[Run]:
    import_module(edit.module)  # some are imported only when they are needed
    put_into_place(edit.code())
    return run(items) if items else []


class _Watch:
    """Notes each function that is called."""

    def __init__(self, inside: str) -> None:
        self._inside = inside
        self._seen = set[int]()  # by id, since to hash code takes long
        self._functions = dict[int, Function | None]()
        self._kept = list[object]()

    def __enter__(self) -> None:
        self._seen.clear()
        threading.settrace(self._note)
        sys.settrace(self._note)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)
        threading.settrace(None)

    def functions(self) -> frozenset[Function]:
        """Return what was called since it began."""
        return frozenset(x for code in self._seen if (x := self._functions[code]) is not None)

    def _note(self, frame: FrameType, _event: str, _argument: object) -> None:
        code = frame.f_code
        key = id(code)
        if key not in self._functions:
            self._kept.append(code)
            ours = code.co_filename.startswith(self._inside)
            self._functions[key] = Function.of(code) if ours else None
        self._seen.add(key)

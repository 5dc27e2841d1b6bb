"""What the page of guarantees names is there, and a mutant breaks each."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.mutants.catalogue import MUTANTS

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "design" / "guarantees.md"
PLACE = re.compile(r"`([\w/]+\.py)::([\w.]+)`")


def rows() -> list[list[str]]:
    lines = [x for x in PAGE.read_text("utf-8").splitlines() if re.match(r"\| \d", x)]
    return [[y.strip() for y in x.strip("|").split("|")] for x in lines]


def defined(file: Path) -> set[str]:
    """Return the functions, classes and methods of a module, by their qualified names."""

    def of(body: list[ast.stmt], prefix: str) -> Iterator[str]:
        for x in body:
            if isinstance(x, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield prefix + x.name
                if isinstance(x, ast.ClassDef):
                    yield from of(x.body, f"{prefix}{x.name}.")

    return set(of(ast.parse(file.read_text("utf-8")).body, ""))


def missing(text: str, folder: Path) -> list[str]:
    places = PLACE.findall(text)
    assert places, f"{text!r} names nothing"
    return [
        f"{file}::{name}"
        for file, name in places
        if not (folder / file).is_file() or name not in defined(folder / file)
    ]


def test_each_guarantee_names_code_and_tests_that_are_there() -> None:
    table = rows()
    assert [x[0] for x in table] == [str(n) for n in range(1, 35)]
    gone = [x for row in table for x in missing(row[2], ROOT)]
    gone += [x for row in table for x in missing(row[3], ROOT / "tests")]
    assert gone == []


def test_a_mutant_breaks_each_guarantee() -> None:
    assert {x.guarantee for x in MUTANTS} - {None} == {int(row[0]) for row in rows()}

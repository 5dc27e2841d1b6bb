"""Mutants are named well, and generated ones change what they say."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.generated import edits, put_into_place
from tests.mutants.mutant import Patch, Stale


def test_each_rule_of_the_design_is_broken_at_least_four_times() -> None:
    assert min(Counter(x.rule for x in MUTANTS).values()) >= 4
    assert {x.rule for x in MUTANTS} == set(range(1, 14))


@pytest.mark.parametrize("name", ["gone", "present"])
def test_a_mutant_of_what_is_gone_or_of_another_kind_cannot_be_made(name: str) -> None:
    owner = type("Owner", (), {"present": property(lambda _: 1)})
    with pytest.raises(Stale, match=name):
        Patch().patch(owner, name, lambda _: 2)


def test_edits_change_live_functions_and_leave_logs_and_texts_alone(tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(
        "import logging\n"
        "def largest(a: int = 1, *, b: int) -> int:\n"
        "    logging.info('%d', 1)\n"
        "    assert a != 2\n"
        "    if a < b:\n"
        "        return b\n"
        "    raise ValueError(f'{a - 1}')\n"
    )
    found = {x.what: x for x in edits(path)}
    assert [*found] == [
        "if a < b: -> if True:",
        "if a < b: -> if False:",
        "a < b -> a <= b",
        "return b -> return None",
        "raise ValueError(f'{a - 1}') -> pass",
    ]
    module: dict[str, object] = {}
    exec(compile(ast.parse(path.read_text()), str(path), "exec"), module)
    assert put_into_place(found["return b -> return None"].code()) == 1
    assert module["largest"](b=3) is None  # type: ignore[operator]

"""The list of mutants does not rot. That the tests kill them shows ``make mutants``."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.mutant import ROOT, Mutant, Stale


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda x: x.name)
def test_what_a_mutant_breaks_is_there_and_is_python_afterwards(mutant: Mutant) -> None:
    ast.parse(mutant.broken((ROOT / mutant.file).read_text()))
    for test in mutant.tests:
        path, _, name = test.partition("::")
        text = (ROOT / path).read_text()
        for suites in re.findall(r"suite_of\(([\w, ]+)\)", text):  # tests of a contract
            for suite in suites.split(", "):
                text += (ROOT / f"changefeed/testing/{suite}.py").read_text()
        assert name.partition("[")[0] in text


def test_each_mutant_has_a_name_of_its_own_and_every_rule_is_broken() -> None:
    assert max(Counter(x.name for x in MUTANTS).values()) == 1
    assert {x.rule for x in MUTANTS} - {0} == set(range(1, 13))


def test_a_mutant_whose_code_has_changed_is_told_with_advice(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\nx = 1\n")
    twice = Mutant(name="m", file="a.py", before="x = 1", after="x = 2", rule=1, tests=("t",))
    with pytest.raises(Stale, match=r"its text stands 2 times in a\.py"):
        twice.apply(tmp_path)

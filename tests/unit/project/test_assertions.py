"""The packages that keep the invariants assert them: often enough to notice what breaks one."""

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LINES_EACH = 60
_WORKER = (
    "checkpointer",
    "context",
    "delivery",
    "lags",
    "load_meter",
    "owned_lease",
    "pool",
    "reader",
    "worker",
)
DENSE = [
    "leases",
    "stores",
    " ".join(f"host/{x}.py" for x in _WORKER),
    "host/decide.py host/coordinator.py host/creation.py host/renewer.py host/membership.py",
    "log",
]
_SPACE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@pytest.mark.parametrize("package", DENSE)
def test_an_assertion_stands_in_each_sixty_lines_of_code(package: str) -> None:
    places = [ROOT / x for x in package.split()]
    files = [y for x in places for y in ([x] if x.is_file() else x.rglob("*.py"))]
    assert files, f"there is no {package}"
    trees = [ast.parse(x.read_text()) for x in files]
    lines = sum(len(code_lines(x.read_text())) for x in files)
    assertions = sum(isinstance(x, ast.Assert) for tree in trees for x in ast.walk(tree))

    assert assertions * LINES_EACH >= lines, (
        f"{package} has {assertions} assertions in {lines} lines of code: assert what the new "
        f"code relies on (docs/design/decisions.md)"
    )


def test_code_is_counted_without_comments_docstrings_and_blank_lines() -> None:
    source = '"""Docs."""\n\n# Why.\ndef f() -> str:\n    """Docs."""\n    return """a\nb"""\n'

    assert code_lines(source) == {4, 6, 7}


def code_lines(source: str) -> set[int]:
    """Return the numbers of the lines that hold code."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    found = {
        line for x in tokens if x.type not in _SPACE for line in range(x.start[0], x.end[0] + 1)
    }
    return found - set(_docstring_lines(source))


def _docstring_lines(source: str) -> Iterator[int]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield from range(node.lineno, (node.end_lineno or node.lineno) + 1)

"""The packages that keep the invariants assert them: often enough to notice what breaks one."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
STATEMENTS_EACH = 48
_WORKER = ["checkpointer", "delivery", "lags", "load_meter", "owned_lease", "reader", "worker"]
DENSE = [
    "leases",
    "stores",
    " ".join(f"host/{x}.py" for x in _WORKER),
    "host/decide.py host/coordinator.py host/renewer.py host/membership.py",
    "log",
]


@pytest.mark.parametrize("package", DENSE)
def test_one_in_48_statements_is_an_assertion(package: str) -> None:
    places = [ROOT / x for x in package.split()]
    files = [y for x in places for y in ([x] if x.is_file() else x.rglob("*.py"))]
    nodes = [x for file in files for x in ast.walk(ast.parse(file.read_text()))]
    statements = sum(isinstance(x, ast.stmt) and not is_docstring(x) for x in nodes)
    assertions = sum(isinstance(x, ast.Assert) for x in nodes)
    assert assertions * STATEMENTS_EACH >= statements > 0, (
        f"{package} has {assertions} assertions in {statements} statements: assert what the "
        f"new code relies on (docs/design/decisions.md)"
    )


def is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)

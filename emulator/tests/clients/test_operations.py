"""Every operation of Azure's clients: it works, or is refused with a text, as the page says.

REFERENCE.md has a table of operations by client; each of its cells is what a run of
that client shows here.
"""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator.tests.clients.endpoint import endpoint
from emulator.tests.clients.programs import HERE, go, java, lines_of, node, python, rust

pytestmark = pytest.mark.nightly
_PAGE = Path(__file__).parents[2] / "REFERENCE.md"
_QUERIES = str(HERE / "queries.json")
_SECONDS = 170.0
_CLIENTS: dict[str, tuple[str, Callable[[str], list[str]]]] = {
    "go": ("Go", lambda name: go("operations", name, _QUERIES)),
    "java": ("Java", lambda name: java("Operations", name)),
    "node": ("Node", lambda name: node("operations.js", name)),
    "rust": ("Rust", lambda name: rust("operations", name, _QUERIES)),
    "python": ("Python", lambda name: python("python_operations", name, "sync")),
    "python-async": ("Python, async", lambda name: python("python_operations", name, "async")),
}


def on_the_page(column: str) -> dict[str, str]:
    """Return what the table says of a client: how each operation ends."""
    rows = [
        [x.strip() for x in line.strip("|\n").split("|")]
        for line in _PAGE.read_text().splitlines()
        if line.startswith("| ")
    ]
    head = next(x for x in rows if column in x)
    at = head.index(column)
    table = rows[rows.index(head) + 1 :]
    cells = {x[0]: x[at] for x in table if len(x) == len(head)}
    return {k: v for k, v in cells.items() if v in {"works", "refused"}}


def worst(lines: list[dict[str, Any]]) -> dict[str, str]:
    """Return how each operation ended; one that was tried several times, how the worst did."""
    order = ["works", "refused", "failed"]
    found: dict[str, str] = {}
    for line in lines:
        operation, result = line["operation"], line["result"]
        found[operation] = max(found.get(operation, "works"), result, key=order.index)
    return found


@pytest.mark.parametrize("client", _CLIENTS)
async def test_each_operation_ends_as_the_page_says(client: str, tmp_path: Path) -> None:
    column, command = _CLIENTS[client]
    name = f"strangers-{uuid.uuid4().hex[:8]}"
    program = command(name)
    async with endpoint(tmp_path) as where:
        lines = await lines_of(program, where.environment, _SECONDS)
    failed = [x for x in lines if x["result"] == "failed"]
    assert failed == []
    if not where.is_account:
        assert worst(lines) == on_the_page(column)


async def test_java_works_the_same_with_weaker_consistency(tmp_path: Path) -> None:
    program = java("Operations", f"strangers-{uuid.uuid4().hex[:8]}", "EVENTUAL")
    async with endpoint(tmp_path) as where:
        lines = await lines_of(program, where.environment, _SECONDS)
    assert [x for x in lines if x["result"] == "failed"] == []
    assert {x["client"] for x in lines} == {"java-eventual"}
    assert len(worst(lines)) > 60

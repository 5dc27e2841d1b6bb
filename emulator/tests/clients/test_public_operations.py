"""The stories call every public function of clients, but for those that a list names.

For Go that is what ran; for the others, what the text of the stories calls.
"""

import asyncio
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import azure.cosmos
import azure.cosmos.aio
import pytest

from emulator.tests.clients.endpoint import endpoint
from emulator.tests.clients.programs import (
    GO_CLIENT,
    HERE,
    go,
    java_jars,
    lines_of,
    node_modules,
)
from emulator.tests.clients.vendor_suites import SUITES

pytestmark = pytest.mark.nightly
_NOT_TRIED = tomllib.loads((HERE / "not_tried.toml").read_text("utf-8"))
_SECONDS = 170.0


def check_named(client: str, missing: set[str]) -> None:
    """Raise if a function that no story calls is not named, or one that is called is."""
    names = _NOT_TRIED[client]
    assert {x for x in missing if not any(re.search(y, x) for y in names)} == set()
    assert {x for x in names if not any(re.search(x, y) for y in missing)} == set()


async def test_the_story_for_go_calls_each_public_function(tmp_path: Path) -> None:
    program = go("operations", "strangers-called", str(HERE / "queries.json"))
    async with endpoint(tmp_path) as where:
        counted = {"GOCOVERDIR": str(tmp_path)}
        await lines_of(program, {**where.environment, **counted}, _SECONDS)
    report = ["go", "tool", "covdata", "func", f"-i={tmp_path}"]
    said = await asyncio.to_thread(subprocess.check_output, report, cwd=HERE / "go", text=True)
    found = re.findall(
        rf"^{re.escape(GO_CLIENT)}/\w+\.go:\d+:\s+\*?((?:[A-Z]\w*\.)?[A-Z]\w*)\s+(\d+)\.",
        said,
        re.MULTILINE,
    )
    assert {"Client.CreateDatabase", "ContainerClient.CreateItem"} <= {x for x, _ in found}
    check_named("go", {name for name, percent in found if percent == "0"})


def test_the_story_for_rust_calls_each_public_function() -> None:
    source = SUITES["rust"].fetch() / "src"
    files = [*source.glob("clients/*.rs"), *source.glob("feed/*.rs")]
    files = [
        x for x in files if x.stem != "distributed_transaction"
    ]  # a feature, as its callers
    found = {x for file in files for x in public_of_rust(file.read_text("utf-8"))}
    assert {"create_database", "query_change_feed"} <= found
    story = text_of(HERE / "rust", "*.rs")
    check_named("rust", {x for x in found if not is_called(x, story)})


def test_the_story_for_python_calls_each_public_function() -> None:
    names = ("CosmosClient", "DatabaseProxy", "ContainerProxy", "ScriptsProxy", "UserProxy")
    clients = [getattr(x, y) for x in (azure.cosmos, azure.cosmos.aio) for y in names]
    found = {x for y in clients for x, z in vars(y).items() if x[0] != "_" and callable(z)}
    assert {"create_database", "query_items_change_feed"} <= found
    story = text_of(HERE, "python_*.py")
    check_named("python", {x for x in found if not is_called(x, story)})


def test_the_story_for_java_calls_each_public_function() -> None:
    (jar,) = java_jars().glob("azure-cosmos-4*.jar")
    names = "Client Database Container Scripts StoredProcedure Trigger UserDefinedFunction User"
    classes = [f"com.azure.cosmos.Cosmos{x}" for x in names.split()]
    said = subprocess.check_output(["javap", "-public", "-cp", jar, *classes], text=True)
    found = set(re.findall(r" (\w+)\(", said))
    assert {"createDatabase", "queryChangeFeed"} <= found
    story = text_of(HERE / "java", "*.java")
    check_named("java", {x for x in found if not is_called(x, story)})


def test_the_story_for_node_calls_each_public_function() -> None:
    types = node_modules() / "@azure/cosmos/dist/esm"
    files = [types / "CosmosClient.d.ts", *(types / "client").rglob("*.d.ts")]
    files = [x for x in files if x.parent.name != "ChangeFeed"]  # what iterators are made of
    pattern = re.compile(r"^    ([a-z]\w*)[(<]", re.MULTILINE)
    found = {x for file in files for x in pattern.findall(file.read_text("utf-8"))}
    found.remove("constructor")
    assert {"executeBulkOperations", "getChangeFeedIterator"} <= found
    story = text_of(HERE / "node", "*.js")
    check_named("node", {x for x in found if not is_called(x, story)})


def public_of_rust(text: str) -> Iterator[str]:
    """Give the public functions of a module; those of a feature that is off, below its name."""
    code = text.partition("\n#[cfg(test)]\nmod ")[0]
    pattern = r"((?:^ +#\[.*\]\n)*)^ +pub (?:async )?fn (\w+)"
    for attributes, name in re.findall(pattern, code, re.MULTILINE):
        feature = re.search(r'feature = "(unstable_dtx|fault_injection)"', attributes)
        yield f"{feature[1]}::{name}" if feature else name


def text_of(folder: Path, pattern: str) -> str:
    return "\n".join(x.read_text("utf-8") for x in sorted(folder.rglob(pattern)))


def is_called(name: str, story: str) -> bool:
    return re.search(rf"[.:]{name}\b", story) is not None

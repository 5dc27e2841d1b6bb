"""Tables of a collection, by the command: through brokers, and on from the store itself."""

import asyncio
import json
from pathlib import Path
from typing import Any

import deltalake
import pytest

from tests.support.broker_processes import QUICK_BROKER, ready
from tests.support.commands import changefeed, running
from tests.support.emulator_process import free_port

pytestmark = pytest.mark.real_time

PATIENCE = 240.0
KEYS = [f"k{n}" for n in range(7)]
SETTINGS = """\
directory = "tables"
[spark]
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"
"""


def pipeline(command: str, feed: str, cwd: Path, *more: str) -> str:
    flags = ("--config=pipeline.toml", f"--feed={feed}", *more)
    done = changefeed("pipeline", command, *flags, cwd=cwd, patience=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def produce(where: str, cwd: Path, first: int, last: int) -> None:
    lines = "".join(
        json.dumps({"k": KEYS[n % 7], "n": n}) + "\n" for n in range(first, last + 1)
    )
    done = changefeed("produce", where, "-", "--key=k", cwd=cwd, stdin=lines, patience=PATIENCE)
    assert done.returncode == 0, done.stderr


def rows(cwd: Path, table: str) -> list[dict[str, Any]]:
    found = deltalake.DeltaTable(str(cwd / "tables" / table)).to_pyarrow_table()
    listed: list[dict[str, Any]] = found.to_pylist()
    return listed


async def test_tables_go_on_from_the_store_where_brokers_have_brought_them(
    tmp_path: Path,
) -> None:
    (tmp_path / "pipeline.toml").write_text(SETTINGS)
    port = free_port()
    brokers, store = f"brokers://127.0.0.1:{port}/orders", f"file://{tmp_path}/cluster#orders"
    flags = (f"--cluster=file://{tmp_path}/cluster", "--name=broker-1", f"--port={port}")
    async with running("broker", *flags, *QUICK_BROKER, cwd=tmp_path) as broker:
        await ready(port)
        for command in ("create", "split"):
            done = await asyncio.to_thread(changefeed, "log", command, brokers, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        await asyncio.to_thread(produce, brokers, tmp_path, 0, 99)
        await asyncio.to_thread(pipeline, "once", brokers, tmp_path)
        assert sorted(json.loads(x["body"])["n"] for x in rows(tmp_path, "changes")) == [
            *range(100)
        ]
        await asyncio.to_thread(changefeed, "log", "merge", brokers, cwd=tmp_path)
        await asyncio.to_thread(produce, brokers, tmp_path, 100, 149)
        broker.process.terminate()
        assert await broker.ends() == 0
    pipeline("once", store, tmp_path)
    found = rows(tmp_path, "changes")
    by_key = sorted(found, key=lambda x: (x["generation"], x["sequence"]))
    assert {k: [json.loads(x["body"])["n"] for x in by_key if x["key"] == k] for k in KEYS} == {
        k: [n for n in range(150) if KEYS[n % 7] == k] for k in KEYS
    }
    latest = {x["key"]: json.loads(x["body"])["n"] for x in rows(tmp_path, "latest")}
    assert latest == {k: max(n for n in range(150) if KEYS[n % 7] == k) for k in KEYS}
    assert {x["lag"] for x in json.loads(pipeline("status", store, tmp_path, "--json"))} == {0}

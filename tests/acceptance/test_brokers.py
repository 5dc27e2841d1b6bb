"""Brokers as users run them: processes over one directory, under producers and a host."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.broker_processes import QUICK_BROKER, ready
from tests.support.commands import QUICK, changefeed, running
from tests.support.ports import free_port, free_ports
from tests.support.processes import Running


@asynccontextmanager
async def broker(cwd: Path, name: str, port: int, *more: str) -> AsyncIterator[Running]:
    """Run a broker over the directory ``cluster``, and give it once it takes records."""
    flags = (f"--cluster=file://{cwd}/cluster", f"--name={name}", f"--set=web.port={port}")
    async with running("broker", *flags, *QUICK_BROKER, *more, cwd=cwd) as process:
        await process.says("web.listening")
        yield process


def log(cwd: Path, *arguments: str) -> str:
    done = changefeed("log", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def address(*ports: int) -> str:
    return f"brokers://{','.join(f'127.0.0.1:{x}' for x in ports)}/orders"


async def test_a_host_follows_a_collection_through_an_era(tmp_path: Path) -> None:
    port = free_port()
    async with broker(tmp_path, "broker-1", port) as process:
        await ready(port, process)
        where = address(port)
        await asyncio.to_thread(log, tmp_path, "create", where, "--parts=2")
        lines = "".join(f'{{"k": "key-{n % 7}", "n": {n}}}\n' for n in range(300))
        done = await asyncio.to_thread(
            changefeed, "produce", where, "-", "--key=k", cwd=tmp_path, stdin=lines
        )
        assert "300 changes appended" in done.stdout, done.stderr
        options = (f"--feed={where}", "--leases=sqlite:leases.db", "--option=path=out.jsonl")
        async with running("run", *options, "--observer=jsonl", *QUICK, cwd=tmp_path) as host:
            await host.reaches(lambda: delivered(tmp_path) == 300)
            await asyncio.to_thread(log, tmp_path, "split", where)
            done = await asyncio.to_thread(
                changefeed, "produce", where, "-", "--key=k", cwd=tmp_path, stdin=lines
            )
            assert done.returncode == 0, done.stderr
            await host.reaches(lambda: delivered(tmp_path) == 600)


def delivered(cwd: Path) -> int:
    out = cwd / "out.jsonl"
    return len(out.read_text().splitlines()) if out.exists() else 0


async def test_several_brokers_run_under_one_supervisor_and_stop_in_order(
    tmp_path: Path,
) -> None:
    port = free_ports(2)
    flags = (f"--cluster=file://{tmp_path}/cluster", "--name=b", f"--set=web.port={port}")
    async with running("broker", "--processes=2", *flags, *QUICK_BROKER, cwd=tmp_path) as both:
        await ready(port, both)
        await ready(port + 1, both)
        await asyncio.to_thread(log, tmp_path, "create", address(port), "--parts=4")
        shown = await asyncio.to_thread(log, tmp_path, "status", address(port + 1), "--json")
        assert set(json.loads(shown)["brokers"]) == {"b-1", "b-2"}
        await a_status_is_watched_while_ranges_split(tmp_path, address(port))
        both.process.terminate()
        assert await both.ends() == 0


async def a_status_is_watched_while_ranges_split(cwd: Path, where: str) -> None:
    async with running("log", "status", where, "--json", "--watch", cwd=cwd) as watching:

        def now() -> Any:
            return json.loads(watching.printed.rpartition("}\n")[0].split("\n")[-1] + "}")

        await watching.reaches(lambda: watching.printed.count("}\n") >= 2)
        assert all(x["says"]["writing"] for x in now()["brokers"].values())
        await asyncio.to_thread(log, cwd, "split", where)
        await watching.reaches(lambda: now()["ranges"][-1]["open"] and len(now()["ranges"]) > 4)
        watching.process.send_signal(signal.SIGINT)
        assert await watching.ends() == 128 + signal.SIGINT
    shown = await asyncio.to_thread(log, cwd, "status", where, "--all")
    assert shown.count("ended") == 4

"""``make demo`` as people run it, on a small part of the data: with processes and signals."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[2]
SMALL = ("--scale=0.005", "--seconds=3")


@asynccontextmanager
async def demo(*arguments: object, temporary: Path) -> AsyncIterator[Process]:
    """Run the demo in a process of its own, which does not outlive the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "samples.flights", *map(str, arguments)),
        cwd=ROOT,
        env={"TMPDIR": str(temporary), "COLUMNS": "100"},
        stdout=PIPE,
        stderr=STDOUT,
    )
    try:
        async with asyncio.timeout(90):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()  # to the end, or its pipe outlives the loop


async def outcome(*arguments: object, temporary: Path) -> tuple[int | None, str]:
    async with demo(*arguments, temporary=temporary) as process:
        output, _ = await process.communicate()
        return process.returncode, output.decode()


async def test_one_host_is_killed_nothing_is_lost_and_damage_is_found_out(
    tmp_path: Path,
) -> None:
    kept, temporary = tmp_path / "kept", tmp_path / "temporary"
    temporary.mkdir()
    code, said = await outcome(*SMALL, f"--keep={kept}", temporary=temporary)
    assert code == 0, said
    victim = re.search(r"killed (demo-\d) \(SIGKILL\)", said)
    assert victim is not None
    assert f"{victim[1]} owns nothing any more" in said
    assert said.count(" holds  ") == 4
    logs = {x.stem: x.read_text() for x in (kept / "logs").iterdir()}
    assert sorted(logs) == [f"demo-{n}" for n in range(1, 6)]
    stopped = {name for name, text in logs.items() if '"host.stopped"' in text}
    assert stopped == logs.keys() - {victim[1]}

    assert (await outcome(f"--prove={kept}", temporary=temporary))[0] == 0
    damaged = max((kept / "observed").rglob("*.tsv"), key=lambda x: x.stat().st_size)
    lines = damaged.read_text().splitlines(keepends=True)
    damaged.write_text("".join(lines[:1] + lines[2:]))
    code, said = await outcome(f"--prove={kept}", temporary=temporary)
    assert code == 1
    assert " FAILS  Each of the" in said
    assert said.count(" holds  ") == 2


async def test_a_demo_that_is_told_to_stop_leaves_no_process_and_no_file(
    tmp_path: Path,
) -> None:
    async with demo(*SMALL, temporary=tmp_path) as process:
        hosts = await started_hosts(process)
        process.send_signal(signal.SIGTERM)
        output, _ = await process.communicate()
    assert process.returncode == 130
    assert output.decode().endswith("demo: interrupted; the hosts are stopped\n")
    assert [x for x in hosts if is_alive(x)] == []
    assert names_in(tmp_path) == []


async def test_a_demo_that_is_killed_leaves_no_host_running(tmp_path: Path) -> None:
    async with demo(*SMALL, temporary=tmp_path) as process:
        hosts = await started_hosts(process)
        process.kill()
        while any(map(is_alive, hosts)):  # noqa: ASYNC110 - nothing tells of their end
            await asyncio.sleep(0.1)


async def test_a_host_that_ends_by_itself_ends_the_demo_and_is_named(tmp_path: Path) -> None:
    async with demo(*SMALL, temporary=tmp_path) as process:
        hosts = await started_hosts(process)
        os.kill(hosts[1], signal.SIGKILL)
        output, _ = await process.communicate()
    assert process.returncode == 1
    assert b"ended by itself, with code -9; its log ends:" in output
    assert [x for x in hosts if is_alive(x)] == []
    assert names_in(tmp_path) == []


async def started_hosts(process: Process) -> list[int]:
    """Wait until the demo has started its hosts; return their process ids."""
    assert process.stdout is not None
    while b"started 4 hosts" not in (line := await process.stdout.readline()):
        assert line, "the demo ended before it had started its hosts"
    children = _read(f"/proc/{process.pid}/task/{process.pid}/children").split()
    assert len(children) == 4
    return [int(x) for x in children]


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be collected does not."""
    try:
        return _read(f"/proc/{pid}/stat").rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def names_in(directory: Path) -> list[str]:
    return [x.name for x in directory.iterdir()]


def _read(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


async def test_a_directory_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    code, said = await outcome(f"--keep={tmp_path}", temporary=tmp_path)
    assert code == 2
    assert "is not empty" in said
    assert names_in(tmp_path) == ["mine.txt"]


async def test_a_directory_without_a_run_has_nothing_to_prove(tmp_path: Path) -> None:
    code, said = await outcome(f"--prove={tmp_path}", temporary=tmp_path)
    assert code == 2
    assert "holds no run" in said

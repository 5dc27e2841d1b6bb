"""``changefeed produce`` as users run it, also when the disk is full and the pipe closes."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from changefeed.log.directory.feed import EventLog
from tests.support.commands import PLACES, QUICK, changefeed, running
from tests.support.disks import small_disk_at
from tests.support.processes import PATIENCE, Running


async def bodies(log: Path) -> list[int]:
    """Read the numbers in a log, in order of their numbers."""
    found = []
    async with EventLog.open(log) as feed:
        for r in await feed.ranges():
            after = await feed.start(r, "beginning")
            while (page := await feed.read(r, after, 1000)).changes:
                found += [x.value()["n"] for x in page.changes]
                after = page.position
    return sorted(found)


def lines(numbers: range, size: int = 0) -> str:
    padding = "x" * size
    return "".join(f'{{"k": {n % 7}, "n": {n}, "p": "{padding}"}}\n' for n in numbers)


async def test_what_was_produced_comes_out_of_a_host_complete(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(lines(range(5000)))
    made = changefeed("produce", "log", "in.jsonl", "--key=k", cwd=tmp_path)
    assert (made.returncode, made.stdout[:32]) == (0, "5,000 changes appended to log, i")
    out = tmp_path / "out.jsonl"
    run = ("run", *PLACES, *QUICK, "--observer=jsonl", "--option=path=out.jsonl")

    def written() -> list[int]:
        text = out.read_text() if out.exists() else ""
        whole = text[: text.rfind("\n") + 1].splitlines()  # the last one may be on its way
        return sorted(json.loads(x)["body"]["n"] for x in whole)

    async with running(*run, cwd=tmp_path) as host:
        await host.reaches(lambda: len(written()) == 5000)
        more = changefeed(
            "produce", "log", "--key=k", cwd=tmp_path, stdin=lines(range(5000, 5010))
        )
        assert more.returncode == 0
        await host.reaches(lambda: len(written()) >= 5010)
        await host.stops()
    assert written() == list(range(5010))


async def test_a_bad_line_is_named_and_what_stood_before_it_stays(tmp_path: Path) -> None:
    text = lines(range(2500)) + "\n{bad\n" + lines(range(2500, 2510))
    ended = changefeed("produce", "log", "--key=k", cwd=tmp_path, stdin=text)
    assert ended.returncode == 2
    assert "line 2502: it is not JSON: " in ended.stderr
    assert "2,500 changes appended to log; go on from line 2502" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert await bodies(tmp_path / "log") == list(range(2500))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_slow_input_is_appended_as_it_comes_and_a_stop_says_how_far_it_got(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with running("produce", "log", "--key=k", cwd=tmp_path) as producer:
        stdin = producer.process.stdin
        assert stdin is not None
        stdin.write(lines(range(3)).encode() + b'{"k": 1, ')
        await arrived(producer, tmp_path / "log", [0, 1, 2])
        producer.process.send_signal(number)
        assert await producer.ends() == 1
    assert (
        "stopped before the end\n3 changes appended to log; go on from line 4" in producer.said
    )
    assert "Traceback" not in producer.said


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB."""
    with small_disk_at(tmp_path / "disk", "2m") as disk:
        yield disk


async def test_on_a_full_disk_nothing_that_was_acknowledged_is_lost(small_disk: Path) -> None:
    text = lines(range(10_000), size=1000)
    ended = changefeed("produce", "log", "--key=k", "--parts=1", cwd=small_disk, stdin=text)
    said = acknowledged(ended)
    kept = await bodies(small_disk / "log")
    assert ended.returncode == 1
    assert "Make room there" in ended.stderr
    assert f"go on from line {said + 1}" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert kept == list(range(said))
    assert said > 0


def acknowledged(ended: CompletedProcess[str]) -> int:
    """Return how many changes the command said it had appended."""
    return int(ended.stderr.split(" changes appended")[0].split()[-1].replace(",", ""))


async def arrived(producer: Running, log: Path, wanted: list[int]) -> None:
    await producer.reaches((log / "wal/00000001/local/.frames/lock").exists)
    async with asyncio.timeout(PATIENCE):
        while await bodies(log) != wanted:  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.05)

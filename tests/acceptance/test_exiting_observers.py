"""Observers with tasks of their own, one of which calls ``sys.exit`` on one change."""

import json
from pathlib import Path

import pytest

from tests.support.commands import PLACES, QUICK, a_log_of, changefeed, running

pytestmark = pytest.mark.real_time

OBSERVERS = """
import asyncio, sys

async def _handle(change):
    await asyncio.sleep(0)
    if change.value()["n"] == 17:
        sys.exit(0)  # a supervisor that minds it would not start the host again
    with open("handled", "a") as file:
        file.write(f"{change.value()['n']}\\n")

async def in_a_group(context, changes):
    async with asyncio.TaskGroup() as group:
        for change in changes:
            group.create_task(_handle(change))

async def gathered(context, changes):
    await asyncio.gather(*(_handle(x) for x in changes))

async def behind_its_back(context, changes):
    context.tasks = [asyncio.create_task(_handle(x)) for x in changes]
    await asyncio.wait(context.tasks)
"""
LETTERS = "--set=observer.dead_letters=sqlite:letters.db"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    a_log_of(100, tmp_path)
    (tmp_path / "exiting.py").write_text(OBSERVERS)
    return tmp_path


def handled(place: Path) -> set[int]:
    file = place / "handled"
    return {int(x) for x in file.read_text().splitlines()} if file.exists() else set()


@pytest.mark.parametrize(("observer", "concurrency"), [("in_a_group", 3), ("gathered", 1)])
async def test_the_change_is_put_aside_and_the_host_goes_on(
    place: Path, observer: str, concurrency: int
) -> None:
    name = f"--observer=exiting:{observer}"
    aside = ("--set=observer.on_failure=dead-letter", "--set=observer.retry.attempts=2")
    more = (f"--set=observer.concurrency={concurrency}", "--set=observer.retry.max_delay=0.1")
    async with running("run", *PLACES, *QUICK, name, *aside, LETTERS, *more, cwd=place) as host:
        await host.reaches(lambda: handled(place) == {*range(100)} - {17})
        await host.says('"event": "change.dead_lettered"')
        await host.stops()
    assert {x["error"] for x in host.events("process.warning")} == {"SystemExit(0)"}

    listed = changefeed("dead-letters", "list", "--json", LETTERS, cwd=place)
    (letter,) = json.loads(listed.stdout)
    assert letter["kind"] == "SystemExit"
    replayed = changefeed("dead-letters", "replay", "--all", name, LETTERS, cwd=place)
    assert replayed.returncode == 1, replayed.stdout
    again = changefeed("dead-letters", "list", "--json", LETTERS, cwd=place)
    assert len(json.loads(again.stdout)) == 1

"""Dead letters on a server that is away.

No checkpoint goes beyond a change that is neither handled nor kept.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from changefeed.observers.dead_letters import open_dead_letters
from tests.acceptance.test_operating import (
    OBSERVE,
    PICKY,
    made,
    place,
    positions,
    until_all_is_read,
)
from tests.support.commands import running
from tests.support.servers import Missing, Postgres

pytestmark = pytest.mark.real_time
__all__ = ["made", "place"]  # the fixtures

LATE = f"""
import time
{PICKY}

def late(changes):
    while not pathlib.Path("away").exists():
        pathlib.Path("reached").touch()
        time.sleep(0.05)
    picky(changes)
"""
FAILING = (
    "--set=observer.on_failure=dead-letter",
    "--set=observer.retry.attempts=2",
    "--set=observer.retry.max_delay=0.05",
    "--set=observer.retry.max_delay=0.2",
)


@pytest.fixture
def server() -> Iterator[Postgres]:
    try:
        made = Postgres()
    except Missing as missing:
        pytest.skip(str(missing))
    made.start()
    yield made
    made.discard()


async def test_what_cannot_be_put_aside_is_not_passed_until_the_server_is_back(
    place: Path, server: Postgres
) -> None:
    (place / "observing.py").write_text(LATE)
    kept = f"--set=observer.dead_letters={server.url}"
    observer = "--observer=observing:late"
    async with running(*OBSERVE, kept, *FAILING, observer, cwd=place) as host:
        await host.reaches((place / "reached").exists)
        await asyncio.to_thread(server.kill)
        (place / "away").touch()
        await host.says("could not be put to the dead letters")
        await host.reaches(lambda: sum(x == 0 for x in positions(place)) <= 1)
        await asyncio.sleep(1)
        before = positions(place)
        await asyncio.to_thread(server.start)
        await host.says('"event": "change.dead_lettered"', times=2)
        await until_all_is_read(host, place)
        await host.stops()
    async with open_dead_letters(server.url) as letters:
        first, _ = await letters.list()
    held = before[int(first.range_id.split(".")[1].removeprefix("p"))]
    assert held < first.sequence
    assert sum(before) < 100

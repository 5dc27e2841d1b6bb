"""Dead letters in PostgreSQL and Cosmos DB: put by one host, worked on from another machine."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from changefeed.observers.dead_letters import DeadLetter, open_dead_letters
from tests.acceptance.test_operating import (
    OBSERVE,
    PICKY,
    made,
    place,
    positions,
    stopped,
    until_all_is_read,
)
from tests.support.commands import Running, changefeed, running
from tests.support.emulator_process import emulator_process, free_port
from tests.support.servers import Missing, Postgres

pytestmark = pytest.mark.real_time
__all__ = ["made", "place"]  # the fixtures

LATE = (
    PICKY
    + """

def late(changes):
    while not pathlib.Path("away").exists():
        pathlib.Path("reached").touch()
        time.sleep(0.05)
    picky(changes)
"""
)
FAILING = (
    "--set=observer.on_failure=dead-letter",
    "--set=observer.retry.attempts=2",
    "--set=observer.retry.first_delay=0.05",
    "--set=observer.retry.max_delay=0.2",
    "--set=observer.reopen_delay=0.5",
)


@dataclass(frozen=True, kw_only=True)
class Away:
    """A place for dead letters whose server can be killed and come back as it was."""

    address: str
    kill: Callable[[], Awaitable[None]]
    start: Callable[[], Awaitable[None]]

    @property
    def setting(self) -> str:
        return f"--set=observer.dead_letters={self.address}"

    async def letters(self) -> list[DeadLetter]:
        async with open_dead_letters(self.address) as letters:
            return list(await letters.list())


async def in_postgres(_: Path, stack: AsyncExitStack) -> Away:
    try:
        server = Postgres()
    except Missing as missing:
        pytest.skip(str(missing))
    stack.callback(server.discard)
    server.start()
    return Away(
        address=server.url,
        kill=lambda: asyncio.to_thread(server.kill),
        start=lambda: asyncio.to_thread(server.start),
    )


async def in_cosmos(folder: Path, stack: AsyncExitStack) -> Away:
    port, processes = free_port(), list[Running]()

    async def start() -> None:
        made = emulator_process(folder, "--data=cosmos", port=port)
        processes.append((await stack.enter_async_context(made))[0])

    async def kill() -> None:
        processes[-1].process.kill()
        await processes[-1].ends()

    await start()
    return Away(address=f"cosmos+http://127.0.0.1:{port}/d/letters", kill=kill, start=start)


@pytest.fixture(params=[in_postgres, in_cosmos])
async def away(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Away]:
    async with AsyncExitStack() as stack:
        yield await request.param(tmp_path, stack)


async def put_by(host: Running, place: Path) -> None:
    await host.says('"event": "change.dead_lettered"', times=2)
    await until_all_is_read(host, place)
    await stopped(host)


async def test_letters_are_listed_shown_replayed_and_discarded_from_another_machine(
    place: Path, away: Away, tmp_path: Path
) -> None:
    async with running(
        *OBSERVE, away.setting, *FAILING, "--observer=observing:picky", cwd=place
    ) as host:
        await put_by(host, place)
    other = tmp_path / "another-machine"
    other.mkdir()
    (other / "observing.py").write_text(PICKY)

    async def letters(*arguments: str, code: int = 0) -> str:
        ended = await asyncio.to_thread(
            changefeed, "dead-letters", *arguments, away.setting, cwd=other
        )
        assert ended.returncode == code, ended.stderr
        return ended.stdout

    listed = [json.loads(x) for x in (await letters("list", "--json")).splitlines()]
    assert [(x["key"], x["kind"]) for x in listed] == [("key-7", "ValueError")] * 2
    first, second = (x["id"] for x in listed)
    assert json.loads(await letters("show", first, "--json"))["body"] == {"k": "key-7", "n": 7}
    await letters("replay", first, "--observer=observing:picky", code=1)
    assert len(await away.letters()) == 2
    (other / "mended").touch()
    replayed = await letters("replay", first, "--observer=observing:picky")
    assert replayed == f"{first}: handled\n"
    assert await letters("discard", second) == f"{second}: discarded\n"
    assert await letters("list") == "there are no dead letters\n"


async def test_what_cannot_be_put_aside_is_not_passed_until_the_server_is_back(
    place: Path, away: Away
) -> None:
    """No checkpoint goes beyond a change that is neither handled nor kept."""
    (place / "observing.py").write_text(f"import time\n{LATE}")
    async with running(
        *OBSERVE, away.setting, *FAILING, "--observer=observing:late", cwd=place
    ) as host:
        await host.reaches((place / "reached").exists)
        await away.kill()
        (place / "away").touch()
        await host.says("could not be put to the dead letters")
        await host.reaches(lambda: sum(x == 0 for x in positions(place)) <= 1)
        await asyncio.sleep(1)
        before = positions(place)
        await away.start()
        await put_by(host, place)
    first, _ = await away.letters()
    held = before[int(first.range_id.split(".")[1].removeprefix("p"))]
    assert held < first.sequence
    assert sum(before) < 100


async def test_letters_of_two_feeds_in_one_place_do_not_displace_each_other(
    place: Path, away: Away, tmp_path: Path
) -> None:
    second = tmp_path / "second"
    second.mkdir()
    (second / "observing.py").write_text(PICKY)
    lines = "".join(f'{{"k": "key-{n % 50}", "n": {n}}}\n' for n in range(100))
    made = changefeed("produce", "log", "-", "--key=k", "--parts=4", cwd=second, stdin=lines)
    assert made.returncode == 0, made.stderr
    for folder in (place, second):
        async with running(
            *OBSERVE, away.setting, *FAILING, "--observer=observing:picky", cwd=folder
        ) as host:
            await put_by(host, folder)
    kept = await away.letters()
    assert len({x.id for x in kept}) == 4
    assert len({x.feed for x in kept}) == 2
    assert len({(x.range_id, x.sequence) for x in kept}) == 2

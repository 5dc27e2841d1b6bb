"""Fleets of real processes to which bad things happen, and the history of what they did.

Every process appends what it is handed to one file (``tests.support.recorder``), and
``changefeed.testing.history`` knows what must hold of that, whatever has happened. The trouble
begins when every host delivers, and enough is left for it to meet them at it.

Leases are in SQLite where a host fails, and in PostgreSQL where connections do: what is common
to all stores is in their contract. That Redis forgets is the story of a sample.
"""

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.addresses import open_container
from changefeed.log.directory.writer import EventLogWriter
from changefeed.runtime.errors import StoreError
from changefeed.testing.history import Delivery, violations
from tests.support import recorder, servers
from tests.support.commands import QUICK, a_log_of, running
from tests.support.cutting_proxy import cutting
from tests.support.make import records
from tests.support.processes import PATIENCE, Running

FIRST, CHANGES, PARTS, PAGE = 80, 640, 4, 20
APPENDED = {f"key-{k}": range(k, CHANGES, 50) for k in range(50)}
CRASH = 2 * PAGE  # the batch in hand, and the one before it, which may be unwritten yet
BOTH: dict[str | None, int] = {"anna": 2, "ben": 2}


class Fleet:
    """Hosts over a log in a folder of their own, with their leases at an address."""

    def __init__(self, folder: Path, leases: str) -> None:
        self.folder = folder
        self.leases = leases

    def host(self, name: str) -> AbstractAsyncContextManager[Running]:
        return running(
            *("run", "--feed=eventlog:log", f"--leases={self.leases}", *QUICK),
            *(f"--set=feed.page_size={PAGE}", f"--set=observer.max_unacknowledged={PAGE}"),
            *("--set=web.port=off", "--set=leases.expiration=2", f"--name={name}"),
            *("--observer=recorder:Recorder", "--option=pace=0.02"),
            "--set=leases.create=true",
            cwd=self.folder,
        )

    @asynccontextmanager
    async def anna_and_ben(self) -> AsyncIterator[tuple[Running, Running]]:
        """Run two hosts; begin when each has two ranges, and delivers what was appended."""
        async with self.host("anna") as anna, self.host("ben") as ben:
            await self.until_owned(anna, BOTH)
            await self.append()
            await self.until_all_go_on(ben)
            yield anna, ben

    async def append(self) -> None:
        """Append what each range takes some seconds for."""
        async with EventLogWriter.open(self.folder / "log") as writer:
            await writer.send_many(records(CHANGES, first=FIRST))

    @property
    def history(self) -> list[Delivery]:
        """What observers were handed; a line that is being written is not there yet."""
        whole, _, _ = (self.folder / "handed.jsonl").read_bytes().rpartition(b"\n")
        return [msgspec.json.decode(x, type=Delivery) for x in whole.splitlines()]

    async def owned(self) -> dict[str | None, int]:
        """Return how many leases each host owns; nothing while that cannot be seen."""
        try:
            options = OpenOptions(create=True)
            async with asyncio.timeout(5), open_container(self.leases, options) as leases:
                return dict(Counter(x.owner for x in await leases.list()))
        except (StoreError, TimeoutError):
            return {}

    async def until_owned(self, host: Running, wanted: dict[str | None, int]) -> None:
        async def so() -> bool:
            return await self.owned() == wanted

        await reaches(host, so)

    async def until_all_go_on(self, host: Running, lines: int = FIRST) -> None:
        """Wait until each range was delivered from, after so many lines of history."""
        await host.reaches(lambda: len({x.range_id for x in self.history[lines:]}) == PARTS)

    async def until_handed(self, host: Running) -> None:
        """Wait until each change was handed to some host."""

        async def so() -> bool:
            return len({(x.range_id, x.sequence) for x in self.history}) >= CHANGES

        await reaches(host, so)

    async def stop(self, *hosts: Running, repeats: int) -> None:
        """Stop all hosts in order: nothing was lost, and so much came again at most."""
        for each in hosts:
            each.process.send_signal(signal.SIGTERM)
        assert [await each.ends() for each in hosts] == [0] * len(hosts)
        assert await self.owned() == {None: PARTS}
        assert violations(self.history, APPENDED, repeats=repeats) == []


async def reaches(host: Running, state: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(3 * PATIENCE):  # servers are started while hosts run
        while not await state():
            assert host.process.returncode is None, host.said
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    a_log_of(FIRST, folder, parts=PARTS)
    shutil.copy(recorder.__file__, folder / "recorder.py")
    (folder / "handed.jsonl").touch()
    return folder


@pytest.fixture
def fleet(made: Path, tmp_path: Path) -> Fleet:
    """A fleet over a log of a few changes in 4 ranges, which nobody has read yet."""
    folder = Path(shutil.copytree(made, tmp_path / "place"))
    return Fleet(folder, f"sqlite:{folder}/leases.db")


# Hosts


async def test_the_ranges_of_a_killed_host_go_on_elsewhere(fleet: Fleet) -> None:
    async with fleet.anna_and_ben() as (anna, ben):
        anna.process.kill()
        await fleet.until_handed(ben)
        await fleet.stop(ben, repeats=CRASH)


async def test_a_frozen_host_that_wakes_up_delivers_nothing_under_a_lease_that_is_over(
    fleet: Fleet,
) -> None:
    async with fleet.anna_and_ben() as (anna, ben):
        anna.process.send_signal(signal.SIGSTOP)
        frozen = len(fleet.history)
        await fleet.until_owned(ben, {"ben": PARTS})
        await fleet.until_all_go_on(ben, frozen)
        anna.process.send_signal(signal.SIGCONT)
        await anna.says('"how": "lost"', times=2)
        await fleet.until_handed(ben)
        await fleet.stop(anna, ben, repeats=CRASH)


# Servers


async def test_writes_whose_answers_are_lost_lose_nothing(fleet: Fleet) -> None:
    try:
        postgres = servers.postgres()
    except servers.Missing as missing:
        pytest.skip(str(missing))
    async with cutting(postgres.port) as proxy:
        address = f"{postgres.url}?fleet=cut"
        fleet.leases = address.replace(f":{postgres.port}", f":{proxy.port}")
        async with fleet.anna_and_ben() as (anna, ben):
            cuts = asyncio.create_task(proxy.cut_again_and_again(0.15))
            await fleet.until_handed(ben)
            cuts.cancel()
            await fleet.stop(anna, ben, repeats=CRASH)
        assert proxy.cuts > 5

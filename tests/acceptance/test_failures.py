"""Fleets of real processes to which bad things happen, and the history of what they did.

Every process appends what it is handed to one file (``tests.support.recorder``), and
``changefeed.testing.history`` knows what must hold of that, whatever has happened. The trouble
begins when every host delivers, and enough is left for it to meet them at it.

Leases are in SQLite where a host fails, and in PostgreSQL where a server does:
what is common to all stores is in their contract. Redis, which may forget, and blobs, which
may be restored, have a story of their own. Each server is one test's alone.
"""

import asyncio
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from changefeed.log.directory.writer import EventLogWriter
from changefeed.runtime.errors import StoreError
from changefeed.testing.history import Delivery, violations
from tests.support import recorder
from tests.support.commands import QUICK, a_log_of, running
from tests.support.cutting_proxy import cutting
from tests.support.lease_place import LeasePlace
from tests.support.make import records
from tests.support.processes import PATIENCE, Running
from tests.support.servers import Azurite, Missing, Postgres, Redis, Server

FIRST, CHANGES, PARTS, PAGE = 80, 640, 4, 20
APPENDED = {f"key-{k}": range(k, CHANGES, 50) for k in range(50)}
CRASH = 2 * PAGE  # the batch in hand, and the one before it, which may be unwritten yet
BOTH: dict[str | None, int] = {"anna": 2, "ben": 2}


@dataclass(frozen=True, kw_only=True)
class Store:
    """Servers, and the addresses of leases on them: one, or ownership and checkpoints. The
    first server keeps ownership.
    """

    servers: list[Server]
    addresses: list[str]

    @property
    def place(self) -> LeasePlace:
        return LeasePlace(addresses=self.addresses, keys={"blob": Azurite.key})

    def at(self, port: int) -> "Store":
        """The same, with ownership reached through another port."""
        old = f"127.0.0.1:{self.servers[0].port}"
        moved = [x.replace(old, f"127.0.0.1:{port}") for x in self.addresses]
        return Store(servers=self.servers, addresses=moved)


def in_postgres() -> Store:
    server = Postgres()
    return Store(servers=[server], addresses=[server.url])


def in_blobs() -> Store:
    server = Azurite()
    return Store(servers=[server], addresses=[f"blob+{server.endpoint}/leases/fleet"])


def in_redis_and_postgres() -> Store:
    owner, keeper = Redis(), Postgres()
    return Store(servers=[owner, keeper], addresses=[owner.url, keeper.url])


class Fleet:
    """Hosts over a log in a folder of their own, with their leases in a store."""

    def __init__(self, folder: Path, store: Store) -> None:
        self.folder = folder
        self.store = store

    def host(self, name: str) -> AbstractAsyncContextManager[Running]:
        return running(
            *("run", "--feed=eventlog:log", *self.store.place.flags, *QUICK),
            *(f"--set=feed.page_size={PAGE}", f"--set=observer.max_unacknowledged={PAGE}"),
            *("--set=web.port=off", "--set=leases.expiration=2", f"--name={name}"),
            *("--observer=recorder:Recorder", "--option=pace=0.02"),
            cwd=self.folder,
            env=self.store.place.environment,
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
            async with asyncio.timeout(5), self.store.place.open() as leases:
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
def fleet(request: pytest.FixtureRequest, made: Path, tmp_path: Path) -> Iterator[Fleet]:
    """A fleet over a log of a few changes in 4 ranges, which nobody has read yet."""
    folder = Path(shutil.copytree(made, tmp_path / "place"))
    in_sqlite = Store(servers=[], addresses=[f"sqlite:{folder}/leases.db"])
    try:
        store = getattr(request, "param", lambda: in_sqlite)()
    except Missing as missing:
        pytest.skip(str(missing))
    with ExitStack() as running_servers:
        for server in store.servers:
            running_servers.callback(server.discard)
            server.start()
        yield Fleet(folder, store)


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


async def restart(server: Server) -> None:
    """Kill a server, and start it over the data that it had written."""
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)


@pytest.mark.parametrize("fleet", [in_postgres], indirect=True)
async def test_writes_whose_answers_are_lost_lose_nothing(fleet: Fleet) -> None:
    async with cutting(fleet.store.servers[0].port) as proxy:
        through = Fleet(fleet.folder, fleet.store.at(proxy.port))
        async with through.anna_and_ben() as (anna, ben):
            cuts = asyncio.create_task(proxy.cut_again_and_again(0.15))
            await fleet.until_handed(ben)
            cuts.cancel()
            await fleet.stop(anna, ben, repeats=CRASH)
        assert proxy.cuts > 5


@pytest.mark.parametrize("fleet", [in_blobs], indirect=True)
async def test_blobs_that_come_back_as_they_were_some_seconds_ago_lose_nothing(
    fleet: Fleet,
) -> None:
    """As after a restore: what was checkpointed since may come again; nothing is skipped.

    Azurite writes what it keeps every five seconds.
    """
    async with fleet.host("anna") as anna, fleet.host("ben") as ben:
        await fleet.until_owned(anna, BOTH)
        await asyncio.sleep(6)
        await fleet.append()
        await fleet.until_all_go_on(ben)
        await restart(fleet.store.servers[0])
        anna.process.kill()
        await fleet.until_handed(ben)
        await fleet.stop(ben, repeats=CHANGES)


@pytest.mark.parametrize("fleet", [in_redis_and_postgres], indirect=True)
async def test_ownership_that_redis_forgets_is_found_again_and_checkpoints_stay(
    fleet: Fleet,
) -> None:
    """The server is flushed while hosts run, and then dies and comes back empty."""
    async with fleet.anna_and_ben() as (anna, ben):
        redis = fleet.store.servers[0]
        assert isinstance(redis, Redis)
        assert redis.ask("FLUSHALL").startswith("+OK")
        await fleet.until_owned(anna, BOTH)
        await restart(redis)
        await fleet.until_handed(ben)
        await fleet.until_owned(anna, BOTH)
        await fleet.stop(anna, ben, repeats=CRASH)

"""Rows and positions in one transaction, by processes that are killed, frozen, stolen from."""

import asyncio
import re
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from random import Random
from typing import Any, Self

import asyncpg
import pytest

from changefeed.testing.history import KeyedChange, KeyRecord, difference
from tests.support import servers
from tests.support.commands import PLACES, QUICK, changefeed, running, status

KEYS, ROUNDS, ROUND = 20, 12, 400
HOSTS = ("anna", "ben", "carl")

OBSERVERS = """
import asyncio, os, time
from changefeed.transactional.postgres import in_postgres
from changefeed.transactional.sqlite import in_sqlite

@in_postgres(os.environ["DATABASE"], name="orders")
async def in_a_server(connection, changes):
    rows = [(x.key, x.value()["n"]) for x in changes]
    await connection.executemany("insert into applied (key, n) values ($1, $2)", rows)
    await asyncio.sleep(0.02 * len(changes))

@in_sqlite(os.environ["DATABASE"], name="orders")
def in_a_file(connection, changes):
    rows = [(x.key, x.value()["n"]) for x in changes]
    connection.executemany("insert into applied (key, n) values (?, ?)", rows)
    time.sleep(0.005 * len(changes))
"""


class Fleet:
    """Three hosts in processes, any of which may be killed or frozen."""

    def __init__(self, observer: str, database: str, cwd: Path) -> None:
        self._observer = f"--observer=observers:{observer}"
        self._database = database
        self._cwd = cwd
        self.hosts: dict[str, Any] = {}
        self._stack = AsyncExitStack()

    async def start(self, name: str) -> None:
        settings = ("leases.max_handoff_time=0", "feed.page_size=40", "host.stop_timeout=5")
        host = running(
            "run",
            *(*PLACES, *QUICK, f"--name={name}", self._observer),
            *(f"--set={x}" for x in settings),
            cwd=self._cwd,
            env={"DATABASE": self._database},
        )
        self.hosts[name] = await self._stack.enter_async_context(host)

    async def trouble(self, name: str, random: Random) -> None:
        """Kill a host and start it again, or freeze it for longer than its leases live."""
        process = self.hosts[name].process
        if random.random() < 0.5:
            process.kill()
            await process.wait()
            await self.start(name)
            return
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(4.5)
        process.send_signal(signal.SIGCONT)

    async def caught_up(self) -> None:
        async with asyncio.timeout(180):
            while True:
                shown = await asyncio.to_thread(status, self._cwd)
                if all(x["lag"] == 0 for x in shown["ranges"]):
                    return
                for name, host in self.hosts.items():  # as a supervisor would
                    if host.process.returncode is not None:
                        await self.start(name)
                await asyncio.sleep(0.5)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()


@asynccontextmanager
async def database(kind: str, cwd: Path) -> AsyncIterator[tuple[str, str, Any]]:
    """Yield its address, the observer over it, and what reads what is applied, in order."""
    create = "create table applied (place {} primary key, key text, n integer)"
    read = "select key, n from applied order by place"
    if kind == "sqlite":
        file = cwd / "orders.db"
        with closing(sqlite3.connect(file)) as connection:
            connection.execute(create.format("integer"))
            yield (
                str(file),
                "in_a_file",
                lambda: asyncio.sleep(0, connection.execute(read).fetchall()),
            )
    else:
        url = servers.postgres().url
        client = await asyncpg.connect(url)
        await client.execute("drop table if exists applied, changefeed_positions")
        await client.execute(create.format("bigserial"))
        yield url, "in_a_server", lambda: client.fetch(read)
        await client.close()


def produce(first: int, count: int, cwd: Path) -> None:
    lines = "".join(
        f'{{"k": "key-{n % KEYS}", "n": {n}}}\n' for n in range(first, first + count)
    )
    made = changefeed("produce", "log", "-", "--key=k", "--parts=6", cwd=cwd, stdin=lines)
    assert made.returncode == 0, made.stderr


@pytest.mark.parametrize("kind", ["postgres", "sqlite"])
async def test_each_change_is_applied_once_through_kills_freezes_and_steals(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "observers.py").write_text(OBSERVERS)
    random = Random(7)
    produce(0, ROUND, tmp_path)
    async with database(kind, tmp_path) as (address, observer, applied):
        async with Fleet(observer, address, tmp_path) as fleet:
            for name in HOSTS:
                await fleet.start(name)
            for n in range(1, ROUNDS):
                await asyncio.to_thread(produce, n * ROUND, ROUND, tmp_path)
                await fleet.trouble(random.choice(HOSTS), random)
            await fleet.caught_up()
        found = [KeyedChange(key, n) for key, n in await applied()]
    written = [KeyedChange(f"key-{n % KEYS}", n) for n in range(ROUNDS * ROUND)]
    assert difference(written, found) == ({}, {})
    keys = KeyRecord()
    for x in written:
        keys.wrote(x)
    for x in found:
        assert not [*keys.early([x])]
        keys.done(x)


async def test_the_program_of_the_page_books_what_is_written(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/exactly-once.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    url = servers.postgres().url
    (tmp_path / "shop.py").write_text(program.replace("postgresql://me@host/shop", url))
    client = await asyncpg.connect(url)
    await client.execute("drop table if exists bookings, changefeed_positions")
    await client.execute("create table bookings (account text, cents integer)")
    lines = "".join(f'{{"k": "ada", "cents": {n}}}\n' for n in range(3))
    made = changefeed("produce", "log", "-", "--key=k", cwd=tmp_path, stdin=lines)
    assert made.returncode == 0, made.stderr
    async with running("run", *PLACES, *QUICK, "--observer=shop:book", cwd=tmp_path):
        async with asyncio.timeout(60):
            count = "select count(*) from bookings"
            while await client.fetchval(count) < 3:  # noqa: ASYNC110 - polls a server
                await asyncio.sleep(0.1)
    booked = await client.fetch("select account, cents from bookings order by cents")
    assert [tuple(x) for x in booked] == [("ada", 0), ("ada", 1), ("ada", 2)]
    await client.close()

"""Brokers of one cluster fail in turn, and so does its store, under producers and a host.

Over a directory, and over S3 as moto serves it. What was acknowledged is read once and in the
order of its key; what cannot be read is said, and never left out.
"""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from changefeed import open_feed, open_producer
from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.feed import Feed
from changefeed.log.format.pack import header_bytes
from changefeed.log.stores.addresses import open_store
from changefeed.log.stores.store import ObjectStore
from tests.support import servers
from tests.support.broker_processes import KEYS, BrokerProcesses, Load, by_key, patiently
from tests.support.cluster_places import in_directory, in_moto
from tests.support.commands import QUICK, running
from tests.support.cutting_proxy import cutting
from tests.support.processes import PATIENCE, Running

EXPIRATION = 2.0
FOUR = "broker-1 broker-2 broker-3 broker-4"
THREE = ("broker-1", "broker-2", "broker-3")


@asynccontextmanager
async def under_load(brokers: BrokerProcesses, cwd: Path, *, parts: int) -> AsyncIterator[Load]:
    """Produce to a collection, and read it with a host; then hold both against each other."""
    async with brokers.client() as client:
        await client.create(parts)
    options = (f"--feed={brokers.address}", "--leases=sqlite:leases.db")
    to_file = ("--observer=jsonl", "--option=path=out.jsonl")
    async with (
        running("run", *options, *to_file, *QUICK, cwd=cwd) as host,
        open_producer(brokers.address) as producer,
    ):
        load = Load(producer)
        await load.goes_on()
        yield load
        await load.stop()
        await reads_all_of(brokers, load)
        await host_has_all_of(host, cwd, load)


async def reads_all_of(brokers: BrokerProcesses, load: Load) -> None:
    async with AsyncExitStack() as stack:
        assert await by_key(await feed_of(brokers, stack)) == (load.expected, {})


async def feed_of(brokers: BrokerProcesses, stack: AsyncExitStack) -> Feed:
    """The feed, once a broker answers: one that its store kept waiting may not yet."""
    return await patiently(
        lambda: stack.enter_async_context(open_feed(brokers.address, OpenOptions()))
    )


async def host_has_all_of(host: Running, cwd: Path, load: Load) -> None:
    """At least once, and no change of a key for the first time before one that it follows."""
    out = cwd / "out.jsonl"

    def first_times() -> dict[str, list[int]]:
        found: dict[str, dict[int, None]] = {}
        for line in out.read_text().splitlines():
            change = json.loads(line)
            found.setdefault(change["key"], {})[change["body"]] = None
        return {k: list(v) for k, v in found.items()}

    async with asyncio.timeout(PATIENCE):
        while not out.exists() or sum(map(len, first_times().values())) < load.count * KEYS:
            assert host.process.returncode is None, host.said
            await asyncio.sleep(0.5)
    assert first_times() == load.expected


async def damage_is_said_and_repair_is_enough(brokers: BrokerProcesses, load: Load) -> None:
    """Change the last byte of an object, and see that it is missed; then put it back."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in brokers.place.environment.items():
            environment.setenv(name, value)
        store = open_store(brokers.place.address)
    key, whole = await oldest_with_records(store)
    await brokers.kill(*[k for k, v in brokers.running.items() if v.process.returncode is None])
    await store.put(key, whole[:-1] + bytes([whole[-1] ^ 1]))
    await brokers.start("broker-1")
    async with AsyncExitStack() as stack:
        found, damaged = await by_key(await feed_of(brokers, stack))
    assert len(damaged) == 1
    assert key in str(damaged)
    assert "Restore the object" in str(damaged)
    for k, values in found.items():
        missing = set(load.expected[k]) - set(values)
        assert values == [x for x in load.expected[k] if x not in missing]
    await store.put(key, whole)
    await reads_all_of(brokers, load)


async def oldest_with_records(store: ObjectStore) -> tuple[str, bytes]:
    for key, _ in await store.list("wal/"):
        data = await store.get(key)
        assert data is not None
        if header_bytes(data) < len(data):
            return key, data
    raise AssertionError("nothing was written")


async def test_over_a_directory_brokers_die_freeze_join_and_leave(tmp_path: Path) -> None:
    cluster = tmp_path / "cluster"
    async with BrokerProcesses(tmp_path, in_directory(cluster), FOUR) as brokers:
        await brokers.start(*THREE)
        async with under_load(brokers, tmp_path, parts=4) as load:
            for name in THREE:
                await brokers.kill(name)
                await load.goes_on()
                await brokers.start(name)
            brokers.signal("broker-1", signal.SIGSTOP)
            await asyncio.sleep(EXPIRATION + 1)
            await load.goes_on()
            brokers.signal("broker-1", signal.SIGCONT)
            await brokers.start("broker-4")
            await load.goes_on()
            async with brokers.client() as client:
                await client.split(None)
            await load.goes_on()
            assert await brokers.leave("broker-4") == 0
            await load.goes_on()
            cluster.rename(tmp_path / "away")  # as a volume that is not mounted any more
            await asyncio.sleep(EXPIRATION + 1)
            assert not cluster.exists()
            (tmp_path / "away").rename(cluster)
            await load.goes_on()
        async with brokers.client() as client:
            assert len((await client.routes()).partitions.open) == 8
        await damage_is_said_and_repair_is_enough(brokers, load)


async def test_ranges_at_rest_are_read_on_after_all_brokers_were_away(tmp_path: Path) -> None:
    async with BrokerProcesses(tmp_path, in_directory(tmp_path / "cluster"), FOUR) as brokers:
        await brokers.start(*THREE)
        async with under_load(brokers, tmp_path, parts=6) as load:
            load.pause()
            await asyncio.sleep(EXPIRATION)  # all is read: no range is asked for by itself
            await brokers.kill(*THREE)
            await asyncio.sleep(EXPIRATION + 1)
            await brokers.start(*THREE)
            load.resume()
            await load.goes_on()


async def test_over_an_object_store_one_is_killed_one_cut_off_and_the_store_fails(
    tmp_path: Path,
) -> None:
    """The store freezes for longer than brokers wait for each other."""
    try:
        server = servers.Moto()
    except servers.Missing as missing:
        pytest.skip(str(missing))
    async with AsyncExitStack() as stack:
        stack.callback(server.discard)
        await asyncio.to_thread(server.start)
        place = await in_moto(server)
        line = await stack.enter_async_context(cutting(server.port))
        names = "broker-1 broker-2"
        brokers = await stack.enter_async_context(BrokerProcesses(tmp_path, place, names))
        await brokers.start("broker-1", place=place.through(line.port))
        await brokers.start("broker-2")
        async with under_load(brokers, tmp_path, parts=2) as load:
            line.fall_silent()  # broker-1 hears nothing of its store any more
            await load.goes_on()
            await asyncio.sleep(EXPIRATION)
            line.go_on()
            await load.goes_on()
            await brokers.kill("broker-2")
            await load.goes_on()
            server.freeze()
            await asyncio.sleep(EXPIRATION + 1)
            server.thaw()
            await load.goes_on()
        await damage_is_said_and_repair_is_enough(brokers, load)

"""Java's change feed processor on the emulator: alone, beside our hosts, and before them."""

import asyncio
import signal
from pathlib import Path

import pytest

from emulator.tests.clients.endpoint import has_account
from emulator.tests.clients.programs import java
from tests.strangers.processors import World, a_world, reached
from tests.support.commands import changefeed
from tests.support.processes import PATIENCE, Running

splits = pytest.mark.skipif(
    has_account(), reason="no range of an account can be split on demand"
)


@pytest.fixture(autouse=True)
def built() -> None:
    """Build the module before a test's clocks run, or skip it."""
    java("Processor")


async def stopped(host: Running) -> None:
    host.process.send_signal(signal.SIGTERM)
    assert await host.ends() == 0, host.said


@splits
@pytest.mark.parametrize("kind", ["changes", "latest"])
async def test_java_delivers_everything_through_splits_and_a_kill(
    kind: str, tmp_path: Path
) -> None:
    async with a_world(tmp_path) as world:
        await world.write(10)
        async with world.java(kind, "j1") as first:
            await world.all_in(lambda: first.ids)
            await world.split("0")
            await world.write(5)
            await world.split("1")
            await world.write(5)
            await world.split("2")
            await world.write(5)
            await world.all_in(lambda: first.ids)
            assert len(first.ids) - len(set(first.ids)) <= 5 * 20  # a page for each parent
            await first.kill()
            await world.write(5)
            async with world.java(kind, "j2") as second:
                await world.all_in(lambda: first.ids + second.ids)
                await second.stop()
        late = {x for x in world.written if int(x.split("-")[1]) >= 25}
        assert late <= set(second.ids)
        assert len(second.ids) <= len(late) + 5 * 20


@splits
async def test_java_of_version_1_follows_a_merge(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.write(5)
        async with world.java("latest", "j1") as host:
            await world.all_in(lambda: host.ids)
            await world.merge("0", "1")
            await world.write(5)
            await world.all_in(lambda: host.ids)
            await world.split("2", at="0A" + "0" * 30)
            await world.write(5)
            await world.all_in(lambda: host.ids)
            await host.stop()


async def test_java_sees_all_versions_and_deletes(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world, world.java("all", "j1") as host:
        orders = world.database.get_container_client("orders")
        await reached_all_ranges(world)
        item = {"id": "a", "customer": "c", "n": 1}
        await orders.create_item(item)
        await orders.upsert_item(item | {"n": 2})
        await orders.delete_item("a", "c")
        await reached(lambda: len(host.operations) == 3)
        assert host.operations == ["create", "replace", "delete"]
        await host.stop()


async def reached_all_ranges(world: World) -> None:
    """Wait until every lease has a position: without one, it begins at the next poll."""
    leases = world.database.get_container_client("leases")
    text = "SELECT VALUE c.id FROM c WHERE IS_STRING(c.ContinuationToken)"
    async with asyncio.timeout(PATIENCE):
        while len([x async for x in leases.query_items(text)]) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def test_java_and_python_share_one_lease_container(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.write(5)
        async with world.java("changes", "j1") as host:
            await world.all_in(lambda: host.ids)
            async with world.python("p1") as ours:
                await ours.says("lease.acquired")
                if not world.is_account:
                    await world.split("0")
                await world.write(5)
                await world.all_in(lambda: host.ids + world.by_python)
                assert world.by_python
                before = len(world.written)
                await host.kill()
                await world.write(5)
                await ours.reaches(lambda: set(world.written[before:]) <= set(world.by_python))
                await stopped(ours)


def check_resumed(world: World) -> None:
    """Our hosts read what was written since, and of Java's last pages at most one a range.

    Java's stop does not wait for the checkpoint of a page that was just delivered.
    """
    repeated = [x for x in world.by_python if x not in world.written[80:]]
    assert set(world.written[80:]) <= set(world.by_python)
    assert len(world.by_python) == len(set(world.by_python))
    assert len(repeated) <= 2 * 20


async def test_java_goes_on_where_python_stopped(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.write(5)
        async with world.python("p1") as ours:
            await world.all_in(lambda: world.by_python)
            await stopped(ours)
        await world.write(5)
        async with world.java("changes", "j1") as host:
            await reached(lambda: set(world.written[80:]) <= set(host.ids))
            await host.stop()
        assert sorted(host.ids) == sorted(world.written[80:])


async def test_python_goes_on_where_java_stopped(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.write(5)
        async with world.java("changes", "j1") as host:
            await world.all_in(lambda: host.ids)
            await host.stop()
        await world.write(5)
        async with world.python("p1") as ours:
            await reached(lambda: set(world.written[80:]) <= set(world.by_python))
            await stopped(ours)
        check_resumed(world)


async def test_leases_of_javas_version_1_are_imported(tmp_path: Path) -> None:
    async with a_world(tmp_path) as world:
        await world.write(5)
        async with world.java("latest", "j1") as host:
            await world.all_in(lambda: host.ids)
            await host.stop()
        await world.write(5)
        leases = world.database.get_container_client("leases")
        text = "SELECT VALUE c.id FROM c WHERE c.version = 1"
        names = [str(x) async for x in leases.query_items(text)]
        prefix = names[0].partition("..")[0]
        done = changefeed(
            "positions",
            "import",
            f"{world.address('leases')}?prefix={prefix}",
            f"--feed={world.address('orders')}",
            f"--leases={world.address('leases')}?prefix=ours",
            "--yes",
            cwd=tmp_path,
            env=world.secrets,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        async with world.python("p1", prefix="ours") as ours:
            await reached(lambda: set(world.written[80:]) <= set(world.by_python))
            await stopped(ours)
        check_resumed(world)
        assert prefix != world.java_prefix

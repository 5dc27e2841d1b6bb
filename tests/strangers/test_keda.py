"""KEDA's own scaler for Cosmos DB over the leases of our hosts, on the emulator."""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import pytest

from emulator.tests.clients.endpoint import has_account
from emulator.tests.clients.programs import cache, digest, made_once
from tests.strangers.processors import World, a_world
from tests.support.commands import changefeed
from tests.support.processes import PATIENCE

pytestmark = [
    pytest.mark.skipif(has_account(), reason="no range of an account can be split on demand"),
]
Said: TypeAlias = Mapping[str, object]
KEDA = "v2.21.0"
PROCESSOR = "billing"
REST: Final[Said] = {"active": False, "lag": 0}
ONE_HOST: Final[Said] = {"active": True, "lag": 1}
"""What it makes of a lease that is named by its bounds: it asks for a range of that name."""


def keda_scaler() -> list[str]:
    """Return the command of KEDA's scaler for Cosmos DB; skip where it cannot be built."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed: apt-get install golang")
    module = Path(__file__).parent / "go"
    folder = cache() / f"keda-{KEDA}-{digest(module.iterdir())}"
    made_once(folder, [str(module / "build"), KEDA], "Go could not build KEDA's scaler")
    return [str(folder / "scaler")]


class Scaler:
    def __init__(self, world: World) -> None:
        self._world = world

    async def says(self) -> Said:
        database = self._world.database.id
        trigger = {
            "databaseId": database,
            "containerId": "orders",
            "leaseDatabaseId": database,
            "leaseContainerId": "leases",
            "processorName": PROCESSOR,
            "connection": self._world.connection_string,
        }
        asked = await asyncio.to_thread(
            subprocess.run,
            keda_scaler(),
            input=json.dumps(trigger).encode(),
            capture_output=True,
            timeout=PATIENCE,
            check=True,
        )
        return dict(json.loads(asked.stdout))

    async def comes_to_say(self, what: Said) -> None:
        async with asyncio.timeout(PATIENCE):
            while await self.says() != what:  # noqa: ASYNC110 - it has to be asked
                await asyncio.sleep(0.5)


@pytest.fixture(autouse=True)
def built() -> None:
    """Build the scaler before a test's clocks run, or skip it."""
    keda_scaler()


async def operate(world: World, command: str, ranges: Sequence[str]) -> None:
    """Split or merge ranges as an operator does."""
    done = await asyncio.to_thread(
        changefeed,
        "range",
        command,
        f"--feed={world.address('orders')}",
        f"--leases={world.dotnet_leases(PROCESSOR)}",
        "--",
        *ranges,
        cwd=world.cwd,
        env=world.secrets,
    )
    assert done.returncode == 0, done.stderr


async def tokens(world: World) -> list[str]:
    """Return what the leases name their ranges, in the order of their keys."""
    found = world.database.get_container_client("leases").query_items(
        "SELECT c.LeaseToken, c.FeedRange FROM c WHERE IS_DEFINED(c.LeaseToken)"
    )
    leases = sorted([x async for x in found], key=lambda x: str(x["FeedRange"]["Range"]["min"]))
    return [x["LeaseToken"] for x in leases]


async def parts(world: World) -> list[str]:
    """Wait until no lease names a range of Cosmos DB; return what they name."""
    async with asyncio.timeout(PATIENCE):
        while not all("-" in x for x in await tokens(world)):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    return await tokens(world)


async def test_the_scaler_counts_what_is_left_and_comes_to_0_after_splits_at_rest(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        scaler, leases = Scaler(world), world.dotnet_leases(PROCESSOR)
        async with world.python("p1", leases=leases) as host:
            await host.says("lease.acquired")
            await scaler.comes_to_say(REST)
            await world.write(2)
            await world.all_in(lambda: world.by_python)
            await scaler.comes_to_say(REST)
            await world.split("0")
            await scaler.comes_to_say(REST)
            await world.split("2")
            await scaler.comes_to_say(REST)
        before = len(world.written)
        await world.write(1)
        left = len(world.written) - before
        assert await scaler.says() == {"active": True, "lag": left}
        await world.split("1")  # while nobody runs: a host is needed to go on
        assert (await scaler.says())["active"]
        async with world.python("p1", leases=leases):
            await world.all_in(lambda: world.by_python)
            await scaler.comes_to_say(REST)


async def test_leases_of_parts_keep_one_host_until_an_operator_merges_them(
    tmp_path: Path,
) -> None:
    async with a_world(tmp_path) as world:
        scaler, leases = Scaler(world), world.dotnet_leases(PROCESSOR)
        async with world.python("p1", leases=leases):
            await world.write(2)
            await world.all_in(lambda: world.by_python)
            await scaler.comes_to_say(REST)
            await world.merge("0", "1")  # each half is read on from its own position
            await scaler.comes_to_say(ONE_HOST)
            await world.write(2)
            await world.all_in(lambda: world.by_python)
            await operate(world, "merge", await parts(world))
            await scaler.comes_to_say(REST)
            assert await tokens(world) == ["2"]
            await operate(world, "split", ["2"])
            await scaler.comes_to_say(ONE_HOST)
            await operate(world, "merge", await parts(world))
            await scaler.comes_to_say(REST)

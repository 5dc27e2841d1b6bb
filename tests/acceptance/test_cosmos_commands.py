"""``doctor`` and ``positions import`` over Cosmos DB, in a process of its own."""

import asyncio
import json
from pathlib import Path
from typing import Any

from azure.cosmos import PartitionKey
from azure.cosmos.aio import ContainerProxy, CosmosClient

from cosmos_emulator import DEVELOPMENT_KEY
from tests.support.commands import invoked
from tests.support.emulator_process import emulator_process


async def command(*arguments: str, cwd: Path) -> tuple[int, str]:
    """Run a command while this loop goes on; return its code and all it said."""
    done = await asyncio.to_thread(invoked, *arguments, cwd=cwd)
    return done.returncode, done.stdout + done.stderr


async def container(
    client: CosmosClient, name: str, key: str, **options: Any
) -> ContainerProxy:
    database = await client.create_database_if_not_exists("d")
    made: ContainerProxy = await database.create_container_if_not_exists(
        name, PartitionKey(key), **options
    )
    return made


async def test_check_tells_what_is_wrong_and_ends_with_2_until_it_is_mended(
    tmp_path: Path,
) -> None:
    async with emulator_process(tmp_path) as (_, url):
        places = (f"--feed=cosmos+{url}d/orders", f"--leases=cosmos+{url}d/leases")
        async with CosmosClient(url, DEVELOPMENT_KEY) as client:
            await container(client, "orders", "/pk")
            code, said = await command("doctor", *places, cwd=tmp_path)
            assert (code, "--set=leases.create=true" in said.replace("\n", "")) == (2, True)
            await container(client, "leases", "/id", default_ttl=-1)
        code, said = await command("doctor", "--watch=0", *places, "--json", cwd=tmp_path)
        found = {x["about"]: x["severity"] for x in json.loads(said)}
        assert (code, found["feed"], found["rights"]) == (0, "ok", "ok")
        assert found["indexing"] == "warning"
        other = f"--feed=cosmos+{url}d/orders?mode=all-versions"
        code, said = await command("doctor", other, places[1], cwd=tmp_path)
        assert (code, "another mode" in said) == (2, True)

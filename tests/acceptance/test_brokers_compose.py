"""The brokers' compose file without an engine: each service's command, in its environment."""

import asyncio
import re
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import image, servers
from tests.support.broker_processes import QUICK_BROKER, ready
from tests.support.commands import changefeed, running
from tests.support.emulator_process import free_port
from tests.support.processes import ended

FOLDER = image.ROOT / "samples/brokers"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((FOLDER / "compose.yaml").read_text())[
    "services"
]
BROKERS = ("broker-1", "broker-2", "broker-3")


def environment(service: str, azurite: servers.Azurite) -> dict[str, str]:
    """Return what a service has set, with the Azurite that is here for its own."""
    given = {k: str(v) for k, v in SERVICES[service]["environment"].items()}
    assert given["AZURE_STORAGE_ENDPOINT"] == f"http://azurite:10000/{azurite.account}"
    assert given["AZURE_STORAGE_ACCOUNT_KEY"] == azurite.key
    return {**given, "AZURE_STORAGE_ENDPOINT": azurite.endpoint}


def make_the_container(azurite: servers.Azurite) -> None:
    program, *flags = SERVICES["container"]["entrypoint"]
    assert program == "python"
    words = (*flags, *SERVICES["container"]["command"])
    env = environment("container", azurite)
    done = ended(sys.executable, *words, cwd=Path(), env=env)
    assert done.returncode == 0, done.stderr


async def test_its_brokers_share_a_collection_that_the_readme_makes_and_fills(
    tmp_path: Path,
) -> None:
    try:
        azurite = servers.azurite()
    except servers.Missing as missing:
        pytest.skip(str(missing))
    for _ in range(2):  # the second "up" finds it there
        await asyncio.to_thread(make_the_container, azurite)
    ports = {x: free_port() for x in BROKERS}
    async with AsyncExitStack() as stack:
        for name, port in ports.items():
            command = [
                x for x in SERVICES[name]["command"] if not x.startswith("--set=web.port=")
            ]
            own = (
                f"--name={SERVICES[name]['hostname']}",
                f"--set=web.port={port}",
                *QUICK_BROKER,
            )
            env = environment(name, azurite)
            await stack.enter_async_context(running(*command, *own, cwd=tmp_path, env=env))
        await asyncio.gather(*map(ready, ports.values()))
        for line in re.findall(
            r"run --rm (?:--no-TTY )?client (.*?[^\\])$", readme(), re.MULTILINE
        ):
            said = await asyncio.to_thread(client, line, ports, tmp_path)
        assert all(x in said for x in BROKERS)
        assert f"{len(PEOPLE.splitlines())} records" in said


PEOPLE = (image.ROOT / "samples/hello/people.jsonl").read_text()


def readme() -> str:
    """Return the first lines that are to be typed, each as one."""
    block = (FOLDER / "README.md").read_text().split("```")[1]
    return block.replace("\\\n", " ")


def client(line: str, ports: dict[str, int], cwd: Path) -> str:
    """Run a line as ``client``, with addresses of here."""
    line, fed, file = line.partition(" < ")
    for name, port in ports.items():
        line = line.replace(name, f"127.0.0.1:{port}")
    assert file.strip() in ("", "samples/hello/people.jsonl")
    done = changefeed(*line.split(), cwd=cwd, stdin=PEOPLE if fed else "")
    assert done.returncode == 0, (line, done.stderr)
    return done.stdout


def test_the_health_check_of_the_image_looks_where_brokers_listen() -> None:
    for name in BROKERS:
        (port,) = (
            x.removeprefix("--set=web.port=")
            for x in SERVICES[name]["command"]
            if x.startswith("--set=web.port=")
        )
        assert str(SERVICES[name]["environment"]["CHANGEFEED_WEB__PORT"]) == port
        assert SERVICES[name]["ports"][0].endswith(f":{port}")
    (env,) = (x.text for x in image.dockerfile() if (x.stage, x.instruction) == (1, "ENV"))
    assert "CHANGEFEED_BROKER__WEB__BIND=0.0.0.0" in env


def test_its_host_reads_what_its_brokers_serve() -> None:
    (feed,) = (x for x in SERVICES["host"]["command"] if x.startswith("--feed="))
    assert feed == f"--feed=brokers://{','.join(BROKERS)}/orders"
    assert [x for x in SERVICES if SERVICES[x].get("hostname") in BROKERS] == [*BROKERS]

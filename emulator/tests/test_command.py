"""The command: what it keeps, how it ends, and what it says of mistakes."""

import asyncio
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.cosmos.aio import CosmosClient

from cosmos_emulator import DEVELOPMENT_KEY
from emulator.tests.by_hand import container
from emulator.tests.process import ended, process


async def test_it_keeps_its_data_and_ends_in_order(tmp_path: Path) -> None:
    async with process(tmp_path, "--data=kept") as (first, url):
        async with CosmosClient(url, DEVELOPMENT_KEY) as client:
            await (await container(client)).create_item({"id": "1", "pk": "p"})
        port = urlsplit(url).port
        code, said = await asyncio.to_thread(ended, tmp_path, f"--port={port}")
        assert (code, f"port {port} is taken" in said) == (2, True)
        code, said = await asyncio.to_thread(ended, tmp_path, "--port=0", "--data=kept")
        assert (code, "kept" in said) == (2, True)
        first.kill()
        await first.wait()
    async with process(tmp_path, "--data=kept") as (second, url):
        async with CosmosClient(url, DEVELOPMENT_KEY) as client:
            items = await container(client)
            assert (await items.read_item("1", "p"))["pk"] == "p"
        second.send_signal(signal.SIGTERM)
        assert await second.wait() == 0


async def test_a_hang_up_that_is_ignored_stays_so(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does; it is inherited
    try:
        async with process(tmp_path) as (started, url):
            started.send_signal(signal.SIGHUP)
            await asyncio.sleep(0.2)
            async with CosmosClient(url, DEVELOPMENT_KEY) as client:
                await client.create_database("d")
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("argument", "advice"),
    [
        ("--key=%%%", "must be base64"),
        ("--host=192.0.2.1", "cannot listen at 192.0.2.1:"),
        ("--host=2001:db8::1", "cannot listen at [2001:db8::1]:"),
        ("--host=nowhere.invalid", "cannot listen at nowhere.invalid:"),
        ("--data=file/below", "cannot be used"),
        ("--region=", "have different names"),
        ("--region=East:lag", "is no region"),
        ("--region=East:lag=-1", "is no region"),
        ("--region=East:lag=700", "is 0 to 600 seconds"),
        ("--region=East;West", "of letters, digits and spaces"),
        ("--consistency=Absolute", "there are Strong, BoundedStaleness"),
    ],
)
def test_what_it_cannot_use_is_told(tmp_path: Path, argument: str, advice: str) -> None:
    (tmp_path / "file").touch()
    code, said = ended(tmp_path, "--port=0", argument)
    assert (code, advice in said, "Traceback" in said) == (2, True, False), said


def test_options_are_taken_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSMOS_EMULATOR_KEY", "%%%")
    code, said = ended(tmp_path, "--port=0")
    assert (code, "must be base64" in said) == (2, True)


def test_regions_have_the_ports_behind_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COSMOS_EMULATOR_REGION", "WestUS EastUS:lag=500ms")
    code, said = ended(tmp_path, "--port=65534")
    assert (code, "2 regions have no ports behind 65534" in said) == (2, True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = ended(tmp_path, f"--port={port - 2}")
    assert (code, f"one of the ports {port - 2} to {port} is taken" in said) == (2, True)


def test_its_help_imports_no_server() -> None:
    program = "from cosmos_emulator.command import main; main(['--help'])"
    show = f"import atexit, sys; atexit.register(lambda: print(*sys.modules)); {program}"
    done = subprocess.run(
        [sys.executable, "-c", show], capture_output=True, text=True, check=True
    )
    assert {"aiohttp", "re2", "pydantic"} & {*done.stdout.split()} == set()


SOURCES = Path(__file__).parents[1] / "src"


def test_it_is_a_program_of_its_own() -> None:
    foreign = re.compile(r"^\s*(?:from|import) (?:changefeed|tests)\b", re.MULTILINE)
    files = [*SOURCES.rglob("*.py")]
    assert len(files) > 40
    assert [x.name for x in files if foreign.search(x.read_text())] == []

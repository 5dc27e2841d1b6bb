"""Each command that runs on ends in order when its terminal hangs up, and while it starts."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from changefeed.leases.addresses import open_container
from tests.support.commands import PLACES, QUICK, a_log_of, running
from tests.support.silence import Silent

BROKER = ("broker", "--name=anna", "--set=web.port=0", "--set=membership.expiration=2")
SERVING = {
    ("run", *PLACES, *QUICK, "--observer=count"): '"event": "lease.acquired"',
    ("run", "--processes=2", *PLACES, *QUICK, "--observer=count"): '"event": "lease.acquired"',
    ("monitor", *PLACES): '"event": "web.listening"',
    (*BROKER, "--cluster=file:///{place}/cluster"): '"event": "web.listening"',
    ("emulator", "--port=0"): "serving Cosmos DB",
}


@pytest.fixture
async def place(tmp_path: Path) -> Path:
    a_log_of(20, tmp_path)
    async with open_container(f"sqlite:{tmp_path / 'leases.db'}"):
        pass  # makes the file, as a host that left has
    return tmp_path


@pytest.fixture
def silent() -> Iterator[Silent]:
    with Silent() as listening:
        yield listening


@pytest.mark.parametrize("command", SERVING, ids=lambda x: x[0])
async def test_a_hang_up_is_an_orderly_stop(command: tuple[str, ...], place: Path) -> None:
    arguments = [x.format(place=place) for x in command]
    async with running(*arguments, cwd=place) as process:
        await process.reaches(lambda: SERVING[command] in process.said + process.printed)
        await process.stops(signal.SIGHUP)
    assert "Traceback" not in process.said
    if command[0] == "broker":
        assert process.events("broker.left")
    if command[0] == "run":
        assert process.events("host.stopped")


async def test_a_broker_that_waits_for_its_store_ends_when_it_is_asked_to(
    tmp_path: Path, silent: Silent
) -> None:
    environment = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{silent.port}",
    }
    command = (*BROKER, "--cluster=s3://bucket/log", "--set=log.format=json")
    async with running(*command, cwd=tmp_path, env=environment) as process:
        await process.reaches(silent.asked.is_set)
        await process.stops()
    assert '"event": "broker.left"' in process.said

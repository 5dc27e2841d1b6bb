"""``changefeed exporter`` as a process, which Prometheus and KEDA ask."""

from pathlib import Path

import aiohttp
import grpc
import pytest

from changefeed.leases.addresses import open_container
from tests.support.commands import PLACES, a_log_of, changefeed, running

pytestmark = pytest.mark.real_time


async def test_a_fleet_without_hosts_is_scaled_over_http_and_grpc(tmp_path: Path) -> None:
    a_log_of(20, tmp_path)
    async with open_container(f"sqlite:{tmp_path / 'leases.db'}"):
        pass  # makes the file, as a host that left has
    exporter = ("exporter", *PLACES, "--lag-per-host=1", "--scaler-port=0")
    async with running(*exporter, cwd=tmp_path) as process:
        await process.says('"event": "web.listening"')
        (web,) = process.events("web.listening")
        (scaler,) = process.events("scaler.listening")
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{web['address']}/scale") as answer:
                assert await answer.json() == {"desired_hosts": 1}, "no lease says its lag"
                assert int(answer.headers["Age"]) < 5
            async with session.get(f"{web['address']}/metrics") as answer:
                assert "changefeed_hosts_desired 1.0" in await answer.text()
        async with grpc.aio.insecure_channel(f"127.0.0.1:{scaler['port']}") as channel:
            active = channel.unary_unary("/externalscaler.ExternalScaler/IsActive")
            assert await active(b"", timeout=10) == b"\x08\x01"
        taken = changefeed(*exporter[:-1], f"--scaler-port={scaler['port']}", cwd=tmp_path)
        assert (taken.returncode, "choose another --scaler-port" in taken.stderr) == (2, True)
        await process.stops()

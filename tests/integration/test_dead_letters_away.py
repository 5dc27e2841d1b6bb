"""Dead letters on a server that is away when a host starts, or that will not have it."""

from pathlib import Path

import pytest

from changefeed.observers.dead_letters import open_dead_letters
from changefeed.runtime.errors import StoreUnavailable
from tests.integration.test_store_leases import own
from tests.support.commands import PLACES, QUICK, a_log_of, running
from tests.support.servers import Postgres, free_port

PUT_ASIDE = "--set=observer.on_failure=dead-letter"


async def test_a_host_waits_for_the_server_of_its_dead_letters_and_goes_on(
    tmp_path: Path,
) -> None:
    a_log_of(4, tmp_path)
    with own(Postgres) as server:
        address = f"--set=observer.dead_letters={server.url}"
        server.kill()
        options = (
            *PLACES,
            *QUICK,
            "--set=leases.create=true",
            "--observer=log",
            PUT_ASIDE,
            address,
        )
        async with running("run", *options, cwd=tmp_path) as host:
            await host.says("open dead letters", times=2)
            assert host.process.returncode is None
            server.start()
            await host.says("host.started")


@pytest.mark.parametrize(
    "place", ["postgresql://someone@{there}/letters", "cosmos+http://{there}/d/c"]
)
async def test_a_place_that_does_not_answer_may_answer_later(place: str) -> None:
    address = place.format(there=f"127.0.0.1:{free_port()}")
    with pytest.raises(StoreUnavailable, match="no answer"):
        async with open_dead_letters(address):
            pass

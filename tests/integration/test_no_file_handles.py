"""A process without file handles waits for its leases, wherever they are kept."""

from pathlib import Path

import pytest

from changefeed.leases.errors import ContainerUnavailable
from tests.support import lease_containers as made
from tests.support import store_containers as stores
from tests.support.handles import out_of_handles

pytestmark = pytest.mark.real_time


KINDS = [made.opened_each(made.sqlite), *map(stores.combined, ("postgres", "redis", "blob"))]


@pytest.mark.parametrize("kind", KINDS, ids=["sqlite", "postgres", "redis", "blob"])
async def test_a_host_out_of_file_handles_waits_for_its_leases(
    kind: made.Harness, tmp_path: Path
) -> None:
    async with kind(tmp_path) as connect:
        await connect()  # the server runs, and what it needs is made
        with out_of_handles(), pytest.raises(ContainerUnavailable):
            await connect()
        assert await (await connect()).list() == []

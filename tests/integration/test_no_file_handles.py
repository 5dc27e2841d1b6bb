"""A process without file handles waits for its leases, wherever they are kept."""

from pathlib import Path

import pytest

from changefeed.runtime.errors import StoreUnavailable
from tests.support.handles import out_of_handles
from tests.support.lease_containers import over


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis", "blob"])
async def test_a_host_out_of_file_handles_waits_for_its_leases(
    kind: str, tmp_path: Path
) -> None:
    async with over(kind)(tmp_path) as connect:
        await connect()  # the server runs, and what it needs is made
        with out_of_handles(), pytest.raises(StoreUnavailable):
            await connect()
        assert await (await connect()).list() == []

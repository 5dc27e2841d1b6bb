from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from changefeed.leases.container import LeaseContainer
from tests.support.lease_containers import Connect

from .containers import CONTAINERS


@pytest.fixture(params=CONTAINERS)
async def connect(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Connect]:
    """Makes one more client to one of our lease containers, which is fresh."""
    async with request.param(tmp_path) as connect:
        yield connect


@pytest.fixture
async def leases(connect: Connect) -> LeaseContainer:
    return await connect()

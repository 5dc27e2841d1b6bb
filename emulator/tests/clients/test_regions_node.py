"""Azure's client for Node among regions, where it prefers one that is behind."""

from pathlib import Path

import pytest

from cosmos_emulator import DEVELOPMENT_KEY
from emulator.tests.clients.programs import lines_of, node
from emulator.tests.process import process

pytestmark = pytest.mark.nightly
_SECONDS = 120.0


async def test_it_reads_in_the_region_it_prefers_and_finds_the_one_that_writes_now(
    tmp_path: Path,
) -> None:
    program = node("regions.js")
    regions = ("--region=West US", "--region=East US:lag=600s")
    async with process(tmp_path, *regions) as (_, url):
        where = {"COSMOS_ENDPOINT": url, "COSMOS_KEY": DEVELOPMENT_KEY}
        behind, caught_up, moved = await lines_of(program, where, _SECONDS)
    # After 404/1002 this client asks the same region again, without its session.
    assert behind == {"status": 404, "answered": {"404": 2}}
    assert (caught_up["id"], moved["id"]) == ("1", "2")

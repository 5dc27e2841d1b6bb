"""What status says of fleets that are as they should not be, over real ones."""

import asyncio
from pathlib import Path

import pytest
from typer.testing import CliRunner

from changefeed.cli.app import app
from changefeed.leases.addresses import open_container
from changefeed.log.directory.directory import create_log


@pytest.mark.real_time
def test_a_feed_that_nobody_reads_is_not_called_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def make_both() -> None:
        await create_log("log", parts=2)
        async with open_container("sqlite:leases.db"):
            pass

    asyncio.run(make_both())
    places = ("--feed=eventlog:log", "--leases=sqlite:leases.db")
    command = ["status", "--filter=unowned", *places]
    found = CliRunner().invoke(app, command, env={"COLUMNS": "200"})
    assert found.exit_code == 0, found.output
    summary, _, tables = found.output.partition("\n")
    assert "2 ranges without a lease, behind by an unknown number" in summary
    assert tables.count("e1.p") == 4, "each in its row, and in what needs attention"

"""What status says of fleets that are as they should not be, over real ones."""

import asyncio
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from changefeed.cli.app import app
from changefeed.cli.io.lease_view import LeaseView
from changefeed.cli.status import rendered
from changefeed.feeds.eventlog import create_log
from changefeed.feeds.memory import MemoryFeed
from changefeed.host.settings import Settings
from changefeed.host.snapshot import FleetInspector, Snapshot
from changefeed.leases.addresses import open_container
from changefeed.leases.lease import Incarnation
from changefeed.leases.life import fence_owner
from changefeed.testing.fleet import Fleet
from tests.support import make
from tests.support.looking import now


def inspector_of(fleet: Fleet, *, clock_ahead: float = 0.0) -> FleetInspector:
    """Look at a fleet from a machine whose clock may be wrong."""

    def wall() -> float:
        return 1_700_000_000.0 + clock_ahead + now()

    return FleetInspector(
        make.settings("status", {}), fleet.container, fleet.feed, None, wall=wall
    )


def states(seen: Snapshot) -> dict[str, str]:
    return {x.name: x.state for x in seen.members}


def shown(seen: Snapshot, pattern: str) -> str:
    out = StringIO()
    Console(file=out, width=200).print(rendered(seen, LeaseView(pattern=pattern)))
    return out.getvalue()


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


@pytest.mark.real_time
@pytest.mark.parametrize("address", ["brokers://[::1/x", "nats:x", "log", "eventlog:"])
def test_a_feed_of_a_wrong_address_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.chdir(tmp_path)

    async def make() -> None:
        async with open_container("sqlite:leases.db"):
            pass

    asyncio.run(make())
    command = ["status", f"--feed={address}", "--leases=sqlite:leases.db"]
    assert CliRunner().invoke(app, command).exit_code == 2


async def test_a_killed_host_is_silent_and_its_ranges_are_found_by_their_state() -> None:
    async with Fleet(ranges=2) as fleet:
        fleet.start("anna")
        await asyncio.sleep(30)
        await fleet.kill("anna")
        await asyncio.sleep(40)
        seen = await inspector_of(fleet).look()
        assert states(seen) == {"anna": "silent"}
        assert {x.state for x in seen.leases} == {"expired"}
        assert "r0" in shown(seen, "expired")


async def test_a_host_that_is_seen_to_move_is_not_silent_whatever_the_clocks_say() -> None:
    async with Fleet(ranges=1) as fleet:
        fleet.start("anna")
        await asyncio.sleep(30)
        inspector = inspector_of(fleet, clock_ahead=120)
        assert states(await inspector.look()) == {"anna": "silent"}, "by its stamp alone"
        await asyncio.sleep(15)
        assert states(await inspector.look()) == {"anna": "running"}
        await fleet.kill("anna")
        await asyncio.sleep(31)
        behind = inspector_of(fleet, clock_ahead=-120)
        assert states(await behind.look()) == {"anna": "running"}
        await asyncio.sleep(31)
        assert states(await behind.look()) == {"anna": "silent"}, "it has stood still"
        assert states(await inspector.look()) == {"anna": "silent"}


async def test_a_record_that_only_keeps_late_heartbeats_out_is_no_host() -> None:
    lease = make.lease("r0", "anna", at="0", incarnation=Incarnation("anna-1"))
    container = await make.leases(lease)
    await fence_owner(container, lease, [])
    seen = await FleetInspector(Settings(), container, MemoryFeed(1), None).look()
    assert (seen.members, [x.owner for x in seen.leases]) == ([], ["anna"])


async def test_failing_ranges_are_found_by_their_state() -> None:
    async def fails(_changes: object) -> None:
        raise ValueError("no such table")

    async with Fleet(ranges=1, observer=fails) as fleet:
        fleet.append("k")
        fleet.start("anna")
        await asyncio.sleep(30)
        seen = await inspector_of(fleet).look()
        assert [x.state for x in seen.leases] == ["failing"]
        assert "1 lease (1 failing)" in shown(seen, "failing")
        assert "0 of 1 ranges are shown" in shown(seen, "stuck")

"""``changefeed run --processes`` as users run it, and one of its processes is killed."""

import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.support.commands import PLACES, QUICK, a_log_of, owners, running, status
from tests.support.processes import Running

HOSTS = ("run", "--processes=3", *PLACES, *QUICK, "--name=h", "--observer=count")
NAMES = ["h-1", "h-2", "h-3"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    a_log_of(100, folder, parts=6)
    return folder


def owned(hosts: Running) -> dict[str, int]:
    """Return how many leases each host works on by now, as the hosts' own logs tell."""
    counts: Counter[str] = Counter()
    for line in hosts.events():
        if line["event"] == "process.started":
            counts[line["name"]] = 0
        elif line["event"] == "lease.acquired":
            counts[line["host"]] += 1
        elif line["event"] == "lease.released":
            counts[line["host"]] -= 1
    return dict(counts)


async def until_even(hosts: Running) -> None:
    await hosts.reaches(lambda: owned(hosts) == dict.fromkeys(NAMES, 2))


async def test_a_killed_host_is_started_again_and_the_leases_are_whole(place: Path) -> None:
    async with running(*HOSTS, cwd=place) as hosts:
        await until_even(hosts)
        victim = next(x["pid"] for x in hosts.events("process.started") if x["name"] == "h-2")
        os.kill(victim, signal.SIGKILL)
        await hosts.says("process.started", times=4)
        await until_even(hosts)
        (ended,) = hosts.events("process.ended")
        assert (ended["name"], ended["signal"], ended["again_after"]) == ("h-2", "SIGKILL", 0)
        await hosts.stops()
    assert owners(place) == [None] * 6
    assert status(place)["hosts"] == []


async def test_hosts_whose_supervisor_is_killed_stop_in_an_orderly_way(place: Path) -> None:
    async with running(*HOSTS, cwd=place) as hosts:
        await until_even(hosts)
        children = [x["pid"] for x in hosts.events("process.started")]
        hosts.process.kill()
        await hosts.ends()
        async with running("status", *PLACES, "--json", "--watch", cwd=place) as watching:
            await watching.reaches(lambda: owners(place) == [None] * 6)
            await watching.reaches(lambda: not any(map(lives, children)))
    assert len(hosts.events("host.stopped")) == 3
    assert status(place)["hosts"] == []


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"

"""What the processes of ``--processes`` are given, and what ends them."""

import asyncio
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from changefeed.cli.children import supervise
from changefeed.cli.host_flags import HostFlags
from changefeed.cli.hosts import arguments_of
from changefeed.host.child_start import ChildStart
from changefeed.host.settings import Settings
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.real_time

ALL = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
SLEEPS = """
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
open(sys.argv[1], "w")
time.sleep(60)
"""


def test_a_child_is_given_its_name_and_the_incarnations_that_are_dead() -> None:
    child = ChildStart(name="h-2", incarnation="third", dead={"first": "SIGSEGV"})
    assert arguments_of(HostFlags(name="h"), Settings(), "h-2", 1) == ["run", "--name=h-2"]
    fixed = Settings.model_validate({"web": {"port": 8000}})
    for n, port in enumerate(("--set=web.port=8000", "--set=web.port=8001")):
        assert port in arguments_of(HostFlags(name="h"), fixed, "h-2", n)
    assert ChildStart.of("h-2", child.environment) == child
    assert ChildStart.of("h-2", {}).dead == {}


def test_the_hosts_of_one_process_have_incarnations_of_their_own_and_know_which_died() -> None:
    first, second = ChildStart.of("h", {}), ChildStart.of("h", {})
    second = replace(second, dead={first.incarnation: "SIGKILL"})
    starts = [x.of_processor(y) for x in (first, second) for y in ("orders", "search")]
    assert len({x.incarnation for x in starts}) == 4
    died = [{x.incarnation: "SIGKILL"} for x in starts[:2]]
    assert [x.dead for x in starts] == [{}, {}, *died]


@pytest.mark.parametrize("number", ALL)
async def test_whatever_asks_the_supervisor_to_stop_stops_its_children(
    number: signal.Signals, tmp_path: Path
) -> None:
    before = {x: signal.signal(x, lambda *_: None) for x in ALL}  # missed, they end no run
    try:
        ready = [tmp_path / x for x in ("a", "b")]
        line = (sys.executable, "-c", SLEEPS)
        running = asyncio.create_task(
            supervise(["a", "b"], lambda x: [*line, str(tmp_path / x.name)], stop_timeout=5.0)
        )
        async with asyncio.timeout(PATIENCE):
            for one in ready:
                while not one.exists():  # noqa: ASYNC110 - another process makes it
                    await asyncio.sleep(0.02)
            os.kill(os.getpid(), number)
            assert await running == 0
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)

"""How much there is to hold in the head: a bound goes down with what it counts.

Only a commit that brings what users asked for may raise one, by what that needs.
"""

import ast
import asyncio
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, Self

from changefeed.feeds.feed import FeedRange, Page, Position, RangeId
from changefeed.feeds.memory import MemoryFeed
from changefeed.fleet.claims import pause, resume
from changefeed.host.settings import Settings
from changefeed.leases.container import ListedFleet
from changefeed.leases.lease import Lease
from changefeed.leases.memory import MemoryLeases
from changefeed.log.brokers.settings import BrokerSettings
from changefeed.pipeline.settings import PipelineSettings
from changefeed.testing.fleet import Fleet, Sections

ROOT = Path(__file__).parents[3]
CORE = ("host", "fleet", "leases", "stores", "observers", "feeds/*.py", "feeds/cosmos")
READY_MADE = ("observers/builtin.py", "observers/http.py")
"""Written as users write theirs: nothing of the core knows them."""
PRODUCT = (
    "cli", "feeds", "fleet", "host", "leases", "log", "observers", "pipeline",
    "runtime", "stores",
)  # fmt: skip


def files(*places: str) -> Iterator[Path]:
    for place in places:
        found = sorted(ROOT.glob(place))
        for x in found:
            yield from [x] if x.is_file() else sorted(x.rglob("*.py"))


def classes(*places: str) -> Iterator[ast.ClassDef]:
    for file in files(*places):
        tree = ast.parse(file.read_text("utf-8"))
        yield from (x for x in ast.walk(tree) if isinstance(x, ast.ClassDef))


def bases(found: ast.ClassDef) -> set[str]:
    return {x.id for x in found.bases if isinstance(x, ast.Name)}


def leaves(section: Any) -> int:
    """Count the settings below a section."""
    fields = section.model_fields.values()
    return sum(
        leaves(x.annotation) if hasattr(x.annotation, "model_fields") else 1 for x in fields
    )


def test_the_core_has_no_more_lines() -> None:
    core = set(files(*CORE)) - {ROOT / x for x in READY_MADE}
    assert sum(len(x.read_text("utf-8").splitlines()) for x in core) <= 26_870


def test_the_log_and_its_brokers_have_no_more_lines() -> None:
    found = files("log")
    assert sum(len(x.read_text("utf-8").splitlines()) for x in found) <= 14_419


def test_the_tests_have_no_more_lines() -> None:
    assert sum(len(x.read_text("utf-8").splitlines()) for x in files("tests")) <= 67_005


def test_there_are_no_more_protocols_and_settings() -> None:
    protocols = [x.name for x in classes(*CORE) if "Protocol" in bases(x)]
    assert len(protocols) <= 8, protocols
    assert leaves(Settings) <= 39
    assert leaves(BrokerSettings) <= 20
    assert leaves(PipelineSettings) <= 27


def test_there_are_no_more_errors() -> None:
    known = {"Exception", "Failure", "UserError"}
    errors = set[str]()
    every = list(classes(*PRODUCT))
    while more := {x.name for x in every if bases(x) & known} - known:
        errors |= more
        known |= more
    assert len(errors) <= 20, sorted(errors)


def test_there_are_no_more_events_in_the_log() -> None:
    called = re.compile(r'_log\.\w+\(\s*(?:[^"(),]+,\s*)?"([a-z_]+\.[a-z_]+)"')
    events = {x for file in files(*PRODUCT) for x in called.findall(file.read_text("utf-8"))}
    assert len(events) <= 40, sorted(events)


def test_there_are_no_more_pages_and_words() -> None:
    pages = list((ROOT / "docs").rglob("*.md"))
    assert len(pages) <= 24
    assert sum(len(x.read_text("utf-8").split()) for x in pages) <= 35_036


class Walk:
    """The files and functions of the product that run while it watches."""

    def __init__(self) -> None:
        self.functions = set[tuple[str, str]]()

    def __enter__(self) -> Self:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _see(self, frame: FrameType, event: str, _: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(ROOT):
            place = file.relative_to(ROOT)
            if place.parts[0] in PRODUCT:
                self.functions.add((str(place), frame.f_code.co_qualname))

    @property
    def files(self) -> set[str]:
        return {x for x, _ in self.functions}


async def test_a_change_passes_no_more_files_on_its_way_to_a_checkpoint() -> None:
    feed, stored = MemoryFeed(1), asyncio.Event()

    class Leases(MemoryLeases):
        async def checkpoint(self, lease: Lease) -> Lease:
            written = await super().checkpoint(lease)
            stored.set()
            return written

    quick: Sections = {"feed": {"poll_interval": 0.1}}  # else others come in between
    async with Fleet(feed, Leases(), settings=quick) as fleet:
        fleet.start("a")
        for _ in range(2):  # the second one meets what is there by then
            await asyncio.sleep(10.5)
            stored.clear()
            feed.append("k", range_id=RangeId("r0"))
            with Walk() as walk:
                await stored.wait()
    assert len(walk.files) <= 25, sorted(walk.files)
    assert len(walk.functions) <= 115, sorted(walk.functions)


async def test_a_listing_passes_no_more_files_on_its_way_to_a_worker_that_reads() -> None:
    walk, begins, has_read, found = Walk(), asyncio.Event(), asyncio.Event(), RangeId("r1")

    class Feed(MemoryFeed):
        async def read(self, found: FeedRange, after: Position, limit: int) -> Page:
            if begins.is_set():
                walk.__exit__()
                has_read.set()
            return await super().read(found, after, limit)

    class Leases(MemoryLeases):
        async def list_fleet(self, *since: Any) -> ListedFleet:
            if begins.is_set():
                walk.__enter__()
            return await super().list_fleet(*since)

    leases = Leases()
    async with Fleet(Feed(2), leases) as fleet:
        fleet.start("a")
        for _ in range(2):  # the second one meets what is there by then
            await asyncio.sleep(30)
            await pause(leases, [found], "for a while")
            await asyncio.sleep(30)
            walk.functions.clear()
            has_read.clear()
            await resume(leases, [found])
            begins.set()
            await has_read.wait()
            begins.clear()
    assert len(walk.files) <= 34, sorted(walk.files)
    assert len(walk.functions) <= 213, sorted(walk.functions)

"""Parts of an event log on disk: through the log's own splits and merges, and with poison."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from changefeed.feeds.feed import Change, RangeId
from changefeed.fleet.reshape import split
from changefeed.host.settings import load_settings
from changefeed.host.wiring import open_host
from changefeed.leases.memory import MemoryLeases
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.feed import EventLog
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.hashing import virtual_part_of
from changefeed.log.records import Record
from changefeed.observers.adapters import adapt
from changefeed.testing.fleet import Fleet, Sections
from tests.support import make
from tests.support.commands import changefeed
from tests.support.looking import until
from tests.support.processes import PATIENCE
from tests.support.sqlite_leases import SqliteLeases
from tests.support.succession import replaced_by

WHOLE = RangeId("e1.p01.v00-ff")
IN_PARTS: Sections = {
    "feed": {
        "start": "beginning",
        "page_size": 10,
        "parallelism": 4,
        "poll_interval": 0.05,
    },
    "timing": {"balance_interval": 0.2},
}


def records(first: int, last: int) -> list[Record]:
    return [Record(key=f"k{n % 40}", body=b"%d" % n) for n in range(first, last)]


async def delivered(fleet: Fleet, count: int) -> None:
    """Wait until so many changes have been delivered; check that it is each once, in order."""
    await until(lambda: len(fleet.log.changes) >= count, within=PATIENCE)
    assert sorted(int(x.body) for x in fleet.log.changes) == list(range(count))
    of_keys: dict[str, list[int]] = {}
    for change in fleet.log.changes:
        of_keys.setdefault(change.key, []).append(int(change.body))
    assert all(x == sorted(x) for x in of_keys.values())


def ranges_of(fleet: Fleet, first: int, last: int) -> set[str]:
    return {x.range_id for x in fleet.log.changes if first <= int(x.body) < last}


async def test_a_log_that_is_split_and_merged_under_its_parts_loses_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    path, container = tmp_path / "log", MemoryLeases()
    await create_log(path, parts=1)
    async with (
        EventLogWriter.open(path) as writer,
        EventLog.open(path) as log,
        Fleet(log, container, settings=IN_PARTS, pace=0.001) as fleet,
    ):
        await writer.append(records(0, 200))
        for name in ("a", "b"):
            fleet.start(name)
        await delivered(fleet, 200)
        parts = [x.id for x in log.split((await log.ranges())[0], 4)]
        assert {*await fleet.owners()} == {*parts}
        await writer.append(records(200, 300))
        # No bound of the new partitions is one of a part.
        halves = await replaced_by(writer, [WHOLE], [(0, 0, 99), (0, 100, 255)])
        await writer.append(records(300, 400))
        await delivered(fleet, 400)
        assert ranges_of(fleet, 0, 300) == {WHOLE}
        assert ranges_of(fleet, 300, 400) == {*halves}

        leased = make.leased(log, container)
        await split(leased, halves[0], 3)
        await writer.append(records(400, 500))
        await delivered(fleet, 500)
        (merged,) = await replaced_by(writer, halves, [(0, 0, 255)])
        await writer.append(records(500, 600))
        await delivered(fleet, 600)
        assert ranges_of(fleet, 400, 500) == {*halves}
        assert ranges_of(fleet, 500, 600) == {merged}
        assert {*await fleet.owners()} == {merged}


async def test_a_poison_change_in_a_part_is_put_aside_and_replayed_under_the_name_of_its_range(
    tmp_path: Path,
) -> None:
    path, leases = tmp_path / "log", tmp_path / "leases.db"
    letters = f"--set=observer.dead_letters=jsonl:{tmp_path / 'letters.jsonl'}"
    await create_log(path, parts=1)
    keys = [f"k{n}" for n in range(40)]
    async with EventLogWriter.open(path) as writer:
        await writer.append([Record(key=x, body=b'"%d"' % n) for n, x in enumerate(keys)])
    low = [x for x in keys if virtual_part_of(x) < 128]
    high = [x for x in keys if virtual_part_of(x) >= 128]
    seen = list[str]()

    async def see(changes: Sequence[Change]) -> None:
        if any(x.key == low[3] for x in changes):
            raise ValueError("a bad one")
        seen.extend(x.key for x in changes)

    settings = load_settings(
        None,
        {
            "feed": {
                "address": f"eventlog:{path}",
                "start": "beginning",
                "poll_interval": 0.1,
                "parallelism": 2,
            },
            "leases": {"address": f"sqlite:{leases}"},
            "observer": {
                "on_failure": "dead-letter",
                "dead_letters": f"jsonl:{tmp_path / 'letters.jsonl'}",
                "retry": {"attempts": 2, "max_delay": 0.1},
            },
            "web": {"port": "off"},
        },
    )
    async with open_host(settings, adapt(see)) as host, asyncio.TaskGroup() as group:
        group.create_task(host.run())
        async with asyncio.timeout(PATIENCE), SqliteLeases(leases) as container:
            while not await all_are_at(container, len(keys)):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        host.stop()
    assert sorted(seen) == sorted({*keys} - {low[3]})
    assert [x for x in seen if x in high] == high

    (letter,) = await listed(letters)
    assert (letter["range_id"], letter["key"]) == (WHOLE, low[3])
    assert letter["sequence"] == keys.index(low[3]) + 1
    replayed = await dead_letters("replay", letter["id"], "--observer=log", letters)
    assert f"{letter['id']}: handled" in replayed
    assert await listed(letters) == []


async def listed(letters: str) -> list[Any]:
    found: list[Any] = json.loads(await dead_letters("list", "--json", letters))
    return found


async def dead_letters(*arguments: str) -> str:
    ended = await asyncio.to_thread(changefeed, "dead-letters", *arguments, cwd=Path.cwd())
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


async def all_are_at(container: SqliteLeases, sequence: int) -> bool:
    stored = [await container.read(x.range_id) for x in await container.list()]
    positions = [x.position or "" for x in stored if x is not None]
    return len(positions) == 2 and all(x.endswith(f"/{sequence}") for x in positions)

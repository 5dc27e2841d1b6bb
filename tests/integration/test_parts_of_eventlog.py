"""Parts of an event log on disk, with a change that no observer can handle."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from changefeed.feeds.feed import Change, RangeId
from changefeed.host.settings import load_settings
from changefeed.host.wiring import open_host
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.hashing import virtual_part_of
from changefeed.log.records import Record
from changefeed.observers.adapters import adapt
from tests.support.commands import changefeed
from tests.support.processes import PATIENCE
from tests.support.sqlite_leases import SqliteLeases

WHOLE = RangeId("e1.p01.v00-ff")


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

"""A log with leases that its changes were done with, made without a host, and what commands
read beside it.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from changefeed.cli.position_export import export
from changefeed.feeds.addresses import open_feed
from changefeed.host.settings import Settings
from changefeed.leases.addresses import open_container
from changefeed.log.directory.directory import create_log
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.records import Record
from changefeed.observers.dead_letters import open_dead_letters
from tests.support import make


async def make_leased_log(place: Path) -> None:
    """Make ``log`` of ten changes in two ranges, and ``leases.db`` of leases at their ends."""
    await create_log(place / "log", parts=2)
    async with (
        EventLogWriter.open(place / "log") as writer,
        open_feed(f"eventlog:{place / 'log'}") as feed,
        open_container(f"sqlite:{place / 'leases.db'}") as container,
    ):
        await writer.send_many([Record(key=f"k{n}", body=b"1") for n in range(10)])
        for x in await feed.ranges():
            end = await feed.start(x, "now")
            await container.create(make.lease(x, at=end, epoch=1))


async def make_home(place: Path) -> None:
    """Make such a log, ``letters.db`` of one letter, ``lines`` to produce, and its positions,
    ``saved``.
    """
    await make_leased_log(place)
    async with open_dead_letters(f"sqlite:{place / 'letters.db'}") as letters:
        await letters.put(make.letter(1))
    (place / "lines").write_text('{"k": 1}\n{"k": 2}\n')
    leases = {"address": f"sqlite:{place / 'leases.db'}"}
    feed = {"address": f"eventlog:{place / 'log'}"}
    settings = Settings.model_validate({"feed": feed, "leases": leases})
    await export(settings, str(place / "saved"))


def stored(place: Path, column: str) -> list[str | None]:
    """Return a column of all leases, read past all code of ours."""
    with closing(sqlite3.connect(place / "leases.db")) as leases:
        rows = leases.execute(f"select {column} from leases order by range_id").fetchall()
    return [x for (x,) in rows]

"""The observers of hosts, run by Spark."""

import asyncio
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from changefeed.feeds.feed import Change
from changefeed.observers.dead_letters import open_dead_letters
from changefeed.observers.observer import Context
from changefeed.pipeline.observing import Observing
from changefeed.pipeline.progress import TableProgress
from changefeed.pipeline.settings import OBSERVER, PipelineSettings
from changefeed.pipeline.shutdown import Stopping
from changefeed.pipeline.source.addresses import identity_at, open_access
from changefeed.pipeline.source.drain import DrainGate
from changefeed.pipeline.source.planning import first_offset
from changefeed.pipeline.supervisor import keep_running
from tests.support.pipeline_feeds import a_log, append_to

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Keeper:
    """Writes down what it is given, with the epoch; fails on one change, always."""

    def __init__(self, path: str, poison: int) -> None:
        self._path = path
        self._poison = poison

    def process(self, context: Context, changes: Sequence[Change]) -> None:
        if any(x.sequence == self._poison for x in changes):
            raise ValueError(f"{self._poison} is poison")
        with Path(f"{self._path}/{context.range.id}").open("a") as out:
            out.writelines(f"{x.key} {x.sequence} {context.epoch}\n" for x in changes)


def test_an_observer_gets_all_in_order_by_key_but_what_it_cannot_handle(
    spark: "SparkSession", tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    settings = PipelineSettings.model_validate(
        {
            "feed": a_log(tmp_path / "log", {f"k{n}": 150 for n in range(10)}, parts=2),
            "directory": str(tmp_path),
            "observer": {
                "name": f"{__name__}:Keeper",
                "options": {"path": str(tmp_path / "out"), "poison": 250},
                "on_failure": "dead-letter",
                "dead_letters": f"sqlite:{tmp_path / 'letters.db'}",
                "retry": {"max_delay": 0.01, "attempts": 2},
            },
        }
    )
    with closing(open_access(settings.feed)) as access:
        start = replace(first_offset(access, "beginning"), epoch=10)
    for total, epoch in ((1500, 11), (1503, 12)):
        hold = DrainGate(tmp_path)
        wanted = Observing(spark=spark, settings=settings, hold=hold, start=start, once=True)
        keep_running(
            {OBSERVER: wanted.started}, Stopping(), hold, progress=TableProgress(), fillers={}
        )
        done, epochs = written(tmp_path / "out")
        aside = asyncio.run(put_aside(settings.observer.dead_letters))
        assert aside
        assert {sequence for _, sequence in aside} == {250}
        assert len(done) == len(set(done)) == total - len(aside)
        assert not set(done) & set(aside)
        assert max(epochs) == epoch
        origins = asyncio.run(origins_of_letters(settings.observer.dead_letters))
        feed = identity_at(settings.feed)
        assert origins == {
            (feed, f"{__name__}:Keeper", settings.checkpoint(OBSERVER)),
        }
        append_to(tmp_path / "log", {"k1": 3})


def written(folder: Path) -> tuple[list[tuple[str, int]], set[int]]:
    """Return what names the changes that were written down, key by key, and the epochs."""
    lines = [
        (file.name, *line.split())
        for file in sorted(folder.iterdir())
        for line in file.read_text().splitlines()
    ]
    by_key = sorted(lines, key=lambda x: x[:2])  # stable: as they came within a key
    assert by_key == sorted(by_key, key=lambda x: (x[:2], int(x[2])))
    return [(x[0], int(x[2])) for x in lines], {int(x[3]) for x in lines}


async def put_aside(address: str) -> list[tuple[str, int]]:
    async with open_dead_letters(address) as letters:
        return [(x.range_id, x.sequence) for x in await letters.list()]


async def origins_of_letters(address: str) -> set[tuple[str, str, str]]:
    async with open_dead_letters(address) as letters:
        return {(x.feed, x.observer, x.fleet) for x in await letters.list()}

"""Bytes of an event log that are not those that were written: none is ever delivered."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from changefeed.feeds.errors import FeedError, FeedRefused, RangeDamaged
from changefeed.feeds.feed import Change, FeedRange, RangeId
from changefeed.log.directory.feed import EventLog
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.ids import position
from tests.support.damaged_logs import (
    HURT,
    SOUND,
    frames_of,
    full_log,
    full_records,
    read_by_pages,
)


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    return await full_log(tmp_path / "log", 2000)


async def written(path: Path) -> dict[RangeId, Sequence[Change]]:
    async with EventLog.open(path) as log:
        return {x: (await read_by_pages(log, x))[0] for x in (HURT, SOUND)}


async def test_a_flipped_byte_of_a_body_stops_its_range_there_and_no_other(path: Path) -> None:
    truth = await written(path)
    first = next(x for x in truth[HURT][400:] if x.body.startswith(b"{"))
    file = frames_of(path)
    file.write_bytes(file.read_bytes().replace(first.body, b'{"m":%s' % first.body[5:]))
    async with EventLog.open(path) as log:
        delivered, error = await read_by_pages(log, HURT)
        others, nothing = await read_by_pages(log, SOUND)
    assert delivered == truth[HURT][: len(delivered)]
    assert first.sequence - 100 < len(delivered) < first.sequence
    assert isinstance(error, RangeDamaged)
    assert error.range_id == HURT
    assert (others, nothing) == (truth[SOUND], None)


HEAD, BODY = 0, 60
"""Where a frame is damaged: what says how far it goes, or the object in it."""


def hurt_a_frame(file: Path, place: int, *, last: bool = False) -> None:
    data = bytearray(file.read_bytes())
    at = data.rindex(b"CFR\n") if last else data.index(b"CFR\n", len(data) // 2)
    data[at + place] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("place", [HEAD, BODY])
@pytest.mark.parametrize("last", [False, True])
async def test_a_damaged_frame_of_the_newest_era_ends_all_ranges_and_takes_no_records(
    path: Path, place: int, *, last: bool
) -> None:
    """Whoever has read up to there is not told that there is nothing more."""
    truth = await written(path)
    hurt_a_frame(frames_of(path), place, last=last)
    async with EventLog.open(path) as log:
        reached = {}
        for name, changes in truth.items():
            delivered, error = await read_by_pages(log, name)
            assert 300 < len(delivered) < len(changes)
            assert delivered == changes[: len(delivered)]
            assert isinstance(error, RangeDamaged)
            reached[FeedRange(id=name)] = position(log.identity, len(delivered))
        assert {*await log.news(reached)} == {*truth}
        assert await log.lags(reached) == {}
    with pytest.raises(FeedRefused, match=r"is not what was written: .* Restore it"):
        async with EventLogWriter.open(path):
            pass


@pytest.mark.parametrize("place", [HEAD, BODY])
async def test_a_damaged_frame_before_a_seal_stops_its_ranges_there_and_no_later_era(
    path: Path, place: int
) -> None:
    """What lies behind it is read by who begins there."""
    truth, file = await written(path), frames_of(path)
    async with EventLogWriter.open(path) as writer:
        await writer.begin_era()
        await writer.send_many(full_records(10))
    hurt_a_frame(file, place)
    for _ in range(2):  # a writer takes over the newest era, whatever became of the one before
        async with EventLogWriter.open(path) as writer:
            await writer.send_many(full_records(10))
    async with EventLog.open(path) as log:
        for name, changes in truth.items():
            delivered, error = await read_by_pages(log, name)
            assert 300 < len(delivered) < len(changes)
            assert delivered == changes[: len(delivered)]
            assert isinstance(error, RangeDamaged)
            behind = position(log.identity, len(delivered) + 100)
            page = await log.read(FeedRange(id=name), behind, 10)
            assert page.changes == changes[len(delivered) + 100 :][:10]
        later = [x for x in await log.ranges() if x.id.startswith("e2.")]
        assert sum([len((await read_by_pages(log, x.id))[0]) for x in later]) == 30


@pytest.mark.parametrize("seed", range(40))
async def test_of_a_file_with_random_damage_only_what_was_written_is_delivered(
    path: Path, tmp_path: Path, seed: int
) -> None:
    """No lie, wherever the bytes are: an error, or what was written."""
    truth = await written(path)
    chance = Random(seed)
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    file = frames_of(copy)
    data = bytearray(file.read_bytes())
    for _ in range(chance.choice([1, 1, 3, 20])):
        at, kind = chance.randrange(len(data)), chance.randrange(3)
        if kind == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif kind == 1:
            data[at] = chance.randrange(256)
        else:
            size = chance.choice([16, 512, 4096])
            data[at : at + size] = bytes(len(data[at : at + size]))
    if seed % 10 == 9:
        del data[chance.randrange(len(data)) :]
    file.write_bytes(data)
    try:
        async with EventLog.open(copy) as log:
            for name, changes in truth.items():
                delivered, error = await read_by_pages(log, name)
                assert delivered == changes[: len(delivered)]
                assert error is not None or delivered == changes
    except FeedError:
        pass  # refused as a whole

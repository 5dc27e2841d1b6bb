"""Bytes of an event log that are not those that were written: none is ever delivered."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from changefeed.feeds.errors import FeedError, FeedRefused, RangeDamaged
from changefeed.feeds.feed import Change, FeedRange, RangeEnded, RangeId
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


def hurt_a_frame(file: Path, place: int, *, last: bool = False) -> int:
    """Flip a bit of a frame; return which byte of the file that is in."""
    data = file.read_bytes()
    at = data.rindex(b"CFR\n") if last else data.index(b"CFR\n", len(data) // 2)
    flip(file, at + place)
    return at + place


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("place", [HEAD, BODY])
@pytest.mark.parametrize("where", ["last", "in the middle", "before a seal"])
async def test_a_damaged_frame_stops_its_ranges_there_and_the_log_goes_on_in_the_next_era(
    path: Path, place: int, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has read up to there is not told that nothing follows, until it is mended."""
    truth, file, is_sealed = await written(path), frames_of(path), where == "before a seal"
    if is_sealed:  # and its writer was killed before it closed the era
        with monkeypatch.context() as killed:
            killed.setattr("changefeed.log.directory.writer.close_and_open", None)
            async with EventLogWriter.open(path) as writer:
                with pytest.raises(TypeError):
                    await writer.begin_era()
    at = hurt_a_frame(file, place, last=where == "last")
    for count in range(3):
        if count:
            async with EventLogWriter.open(path) as writer:
                await writer.send_many(full_records(10))
                assert writer.era.number == 2
        async with EventLog.open(path) as log:
            reached = {}
            for name, changes in truth.items():
                begin = await log.start(FeedRange(id=name), "beginning")
                delivered, error = await read_by_pages(log, name, after=begin)
                assert 300 < len(delivered) < len(changes)
                assert delivered == changes[: len(delivered)]
                assert isinstance(error, RangeDamaged)
                reached[FeedRange(id=name)] = position(log.identity, len(delivered))
                behind = len(delivered) + 100
                if count and where != "last":
                    page = await log.read(
                        FeedRange(id=name), position(log.identity, behind), 10
                    )
                    assert page.changes == changes[behind:][:10]
            assert {*await log.news(reached)} == {*truth}
            assert (await log.lags(reached)).keys() == (
                {*truth} if count and is_sealed else set()
            )
    flip(file, at)
    async with EventLog.open(path) as log:
        for name, changes in truth.items():
            end = position(log.identity, len(changes))
            with pytest.raises(RangeEnded) as ended:
                await log.read(FeedRange(id=name), end, 1)
            assert [x.range.id for x in ended.value.children] == [name.replace("e1.", "e2.")]
            page = await log.read(FeedRange(id=name), position(log.identity, 0), len(changes))
            assert page.changes == changes
        later = [x for x in await log.ranges() if x.id.startswith("e2.")]
        assert sum([len((await read_by_pages(log, x.id))[0]) for x in later]) == 20


async def test_a_log_without_its_catalog_is_no_empty_log(path: Path) -> None:
    (path / "catalog").unlink()
    for opened in (EventLog.open(path), EventLogWriter.open(path)):
        with pytest.raises(FeedRefused, match="catalog is missing: restore it"):
            await opened.__aenter__()


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

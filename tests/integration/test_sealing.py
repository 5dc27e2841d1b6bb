"""An event log of which a part is sealed: readers, the border, kills at each step, damage."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from changefeed.feeds.backlog import lag_of
from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeDamaged
from changefeed.feeds.eventlog import (
    EventLog,
    EventLogWriter,
    Sealed,
    SealPolicy,
    bulk,
    sealer,
    sealing,
    segments,
)
from changefeed.feeds.eventlog.arrow_columns import layout_of
from changefeed.feeds.eventlog.block_format import Layout
from changefeed.feeds.eventlog.bulk import BulkLog, BulkReader
from changefeed.feeds.eventlog.sealed import sealed_with
from changefeed.feeds.feed import Change, FeedRange, RangeEnded, RangeId
from tests.support.damaged_logs import (
    HURT,
    NEW_YEAR,
    SOUND,
    full_log,
    full_records,
    read_by_pages,
    records_of,
    written,
)
from tests.support.succession import replace_partitions

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[2]
RANGES = (HURT, SOUND)
ALL = SealPolicy(everything=True)


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    return await full_log(tmp_path / "log", 3000)


@pytest.fixture
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several segments for each range, and several row groups in each."""
    monkeypatch.setattr(sealer, "_GROUP_RECORDS", 400)
    monkeypatch.setattr(sealer, "pieces", partial(sealing.pieces, most=30_000))


small_pieces = pytest.mark.usefixtures("_small_pieces")


async def seal(path: Path, policy: SealPolicy = ALL) -> Sequence[Sealed]:
    async with EventLogWriter.open(path, synchronous="off") as writer:
        return await writer.seal(policy)


async def everything(path: Path) -> dict[RangeId, list[Change]]:
    return {x: await written(path, x) for x in RANGES}


def in_bulk(path: Path, range_id: RangeId, after: int, end: int) -> list[int]:
    reader = BulkReader(BulkLog.at(path))
    try:
        return [
            n
            for x in reader.read(range_id, after, end, batch=100)
            for n in range(x.first, x.first + x.count)
        ]
    finally:
        reader.close()


def files(path: Path) -> set[Path]:
    return set(path.glob("segments/*/*"))


def names(path: Path) -> list[Any]:
    with records_of(path) as file:
        return file.execute("SELECT * FROM segments").fetchall()


@small_pieces
async def test_sealed_changes_are_read_as_they_were_written_from_any_position(
    path: Path,
) -> None:
    before = await everything(path)
    made = await seal(path)
    assert len({x.range_id for x in made}) == 2
    assert len(made) > 4
    assert sum(x.last - x.first + 1 for x in made) == 3000
    async with EventLogWriter.open(path) as writer:
        await writer.append(full_records(500, 3000))
    assert [len(x) for x in (await everything(path)).values()] != [
        len(x) for x in before.values()
    ]
    whole, chance = await written(path), Random(7)
    assert whole[: len(before[HURT])] == before[HURT]
    borders = [x.last for x in made if x.range_id == HURT]
    places = {0, len(whole), *(y + z for y in borders for z in (-1, 0, 1))}
    places |= {chance.randrange(len(whole)) for _ in range(10)}
    async with EventLog.open(path) as log:
        for place in sorted(places):
            start = log.position_after(whole[place - 1]) if place else None
            got, error = await read_by_pages(log, HURT, start, limit=chance.choice([7, 300]))
            assert (got, error) == (whole[place:], None)
            end = chance.randint(place, len(whole))
            assert in_bulk(path, HURT, place, end) == [*range(place + 1, end + 1)]
            if place:
                assert await lag_of(
                    log, FeedRange(id=HURT), log.position_after(whole[place - 1])
                ) == (len(whole) - place)


@small_pieces
async def test_a_start_at_a_time_is_the_same_whether_changes_are_sealed_or_not(
    path: Path,
) -> None:
    def in_columns() -> list[int]:
        log = BulkLog.at(path)
        return [log.sequence_before(HURT, int(x.timestamp()) * 10**6) for x in times]

    times = [NEW_YEAR + timedelta(seconds=x) for x in range(-20, 3020, 97)]

    async def starts() -> list[object]:
        async with EventLog.open(path) as log:
            return [await log.start(FeedRange(id=HURT), x) for x in times]

    before = await starts()
    before_in_columns = in_columns()
    await seal(path, SealPolicy(larger_than=1))  # all but the last block of each
    assert await starts() == before
    assert in_columns() == before_in_columns
    await seal(path)
    assert await starts() == before


async def test_a_reader_that_is_in_the_middle_reads_on_across_a_border_that_is_made(
    path: Path,
) -> None:
    truth = await written(path)
    async with EventLog.open(path) as log:
        first = await log.read(
            FeedRange(id=HURT), await log.start(FeedRange(id=HURT), "beginning"), 300
        )
        reader = BulkReader(BulkLog.at(path))
        pieces = reader.read(HURT, 0, len(truth), batch=100)
        begun = next(pieces)
        await seal(path)
        rest, error = await read_by_pages(log, HURT, first.position)
        assert ([*first.changes, *rest], error) == (truth, None)
        assert begun.count + sum(x.count for x in pieces) == len(truth)
        assert sum(x.count for x in reader.read(HURT, 0, len(truth))) == len(truth)
        reader.close()
        async with EventLogWriter.open(path) as writer:
            await writer.append(full_records(600, 3000))
            await writer.seal(ALL)
            await writer.give_back()
        again, error = await read_by_pages(log, HURT, first.position)
        assert error is None
        assert [*first.changes, *again] == await written(path)


async def test_sealing_names_what_it_was_asked_for_and_does_nothing_twice(path: Path) -> None:
    await replace_partitions(path, [HURT], [(0, 0, 127), (0, 128, 255)])
    assert {x.range_id for x in await seal(path, SealPolicy(closed=True))} == {HURT}
    assert not await seal(path, SealPolicy(closed=True))
    assert not await seal(path, SealPolicy(larger_than=10**9))
    assert not await seal(path, SealPolicy(older_than=10**9))
    assert {x.range_id for x in await seal(path, SealPolicy(older_than=3600))} == {SOUND}
    assert not await seal(path)
    async with EventLog.open(path) as log:
        changes, _ = await read_by_pages(log, SOUND)
        whole = await log.start(FeedRange(id=HURT), "now")
        with pytest.raises(RangeEnded) as ended:
            await log.read(FeedRange(id=HURT), whole, 10)
    assert len(ended.value.children) == 2
    assert changes == await written(path, SOUND)


async def test_nothing_is_older_than_time_itself(path: Path) -> None:
    assert not await seal(path, SealPolicy(older_than=86400e21))


async def test_only_changes_as_old_as_was_said_are_sealed(path: Path) -> None:
    middle = NEW_YEAR.timestamp() + 1500
    async with EventLogWriter.open(path, clock=lambda: middle + 60) as writer:
        made = await writer.seal(SealPolicy(older_than=60))
    truth = await everything(path)
    for x in made:
        assert all(y.committed_us < middle * 10**6 for y in truth[x.range_id][: x.last])
        assert x.last > 400


async def test_without_pyarrow_segments_are_refused_with_advice_and_blocks_are_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await everything(path)
    await seal(path, SealPolicy(larger_than=1))
    for name in ("segments", "arrow_columns"):
        monkeypatch.setitem(sys.modules, f"changefeed.feeds.eventlog.{name}", None)
    monkeypatch.delattr("changefeed.feeds.eventlog.segments", raising=False)
    async with EventLog.open(path) as log:
        with pytest.raises(FeedRefused, match=r"pip install 'changefeed-host\[segments\]'"):
            await log.read(
                FeedRange(id=HURT), await log.start(FeedRange(id=HURT), "beginning"), 10
            )
        last = before[HURT][-2]
        page = await log.read(FeedRange(id=HURT), log.position_after(last), 10)
        assert page.changes == before[HURT][-1:]
    with pytest.raises(FeedRefused, match=r"pip install 'changefeed-host\[segments\]'"):
        await seal(path)


async def test_a_writer_seals_in_the_background_while_it_appends_and_others_read(
    path: Path,
) -> None:
    policy = SealPolicy(larger_than=1)
    async with (
        EventLog.open(path) as log,
        EventLogWriter.open(path, synchronous="off", sealing=policy, seal_every=0.01) as writer,
    ):
        for begin in range(3000, 9000, 200):
            await writer.append(full_records(200, begin))
            await read_by_pages(log, HURT)
        await asyncio.sleep(0.3)
        with records_of(path) as file:
            assert file.execute("SELECT count(*) FROM blocks").fetchone()[0] < 6
            assert file.execute("SELECT count(*) FROM segments").fetchone()[0] > 2
    found = await everything(path)
    assert {x.key for y in found.values() for x in y} == {f"k{n}" for n in range(9000)}
    assert sum(map(len, found.values())) == 9000


async def test_a_block_that_grows_while_its_segment_is_made_is_not_given_up(path: Path) -> None:
    before = await everything(path)
    async with EventLogWriter.open(path) as writer:
        loop, done = asyncio.get_running_loop(), asyncio.Event()

        def append_meanwhile(step: str) -> None:
            if step == "the file has its name" and not done.is_set():
                done.set()
                asyncio.run_coroutine_threadsafe(
                    writer.append(full_records(50, 3000)), loop
                ).result()

        made = await writer.seal(ALL, reached=append_meanwhile)
        (one,) = made  # of the first range nothing, of the second all but the block that grew
        assert (one.range_id, one.first) == (SOUND, 1)
        assert [x.range_id for x in await writer.seal(ALL)] == [HURT, SOUND]
    found = await everything(path)
    assert sum(map(len, found.values())) == 3050
    assert all(found[x][: len(before[x])] == before[x] for x in RANGES)
    assert len(files(path)) == 3


async def test_a_block_that_grows_before_its_segment_is_made_is_sealed_whole(
    path: Path,
) -> None:
    async with EventLogWriter.open(path) as writer:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        await writer.append(full_records(1, 3000))
        await writer.seal(ALL)
        await writer.append(full_records(50, 3001))  # to one block of each range, and no more

        def append_meanwhile(step: str) -> None:
            if step == "the file is begun" and not done.is_set():
                done.set()
                asyncio.run_coroutine_threadsafe(
                    writer.append(full_records(50, 3051)), loop
                ).result()

        made = [*await writer.seal(ALL, reached=append_meanwhile), *await writer.seal(ALL)]
        assert [x.range_id for x in made] == [HURT, SOUND]
        assert sum(x.last - x.first + 1 for x in made) == 100
    found = await everything(path)
    assert sum(map(len, found.values())) == 3101


async def test_blocks_that_are_sealed_between_two_looks_are_found(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = await written(path)
    looks: list[Any] = []

    def sealed_meanwhile(*arguments: Any) -> Any:
        found = sealed_with(*arguments)
        if not looks:
            looks.append(found)
            asyncio.run(seal(path))
        return found

    monkeypatch.setattr(bulk, "sealed_with", sealed_meanwhile)
    found = await asyncio.to_thread(in_bulk, path, HURT, 0, len(truth))
    assert found == [*range(1, len(truth) + 1)]
    assert looks == [None]


async def test_a_disk_that_does_not_keep_a_segment_loses_no_block(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await everything(path)
    laid = layout_of

    def another(batch: Any) -> Layout:
        found = laid(batch)
        return found._replace(keys=found.keys[::-1])

    monkeypatch.setattr(segments, "layout_of", another)
    with pytest.raises(RangeDamaged):
        await seal(path)
    monkeypatch.undo()
    assert await everything(path) == before
    assert not await asyncio.to_thread(names, path)


async def test_a_segment_is_on_the_disk_before_it_has_its_name_and_then_its_name_is(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, really, folders = set[int](), os.fsync, list[Path]()

    def noted(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        really(handle)

    def reached(step: str) -> None:
        if step == "the file is written":
            (unnamed,) = [x for x in files(path) if x.suffix == ".new"]
            assert unnamed.stat().st_ino in synced
            folders.append(unnamed.parent)
            synced.clear()
        elif step == "the file has its name":
            for place in (path, path / "segments", folders[-1]):
                assert place.stat().st_ino in synced

    monkeypatch.setattr(os, "fsync", noted)
    async with EventLogWriter.open(path, synchronous="off") as writer:
        made = await writer.seal(ALL, reached=reached)
    assert [x.name for x in folders] == [x.range_id for x in made] == [*RANGES]


async def test_while_another_process_writes_nothing_is_sealed_and_the_writer_is_named(
    path: Path,
) -> None:
    async with EventLogWriter.open(path):
        with pytest.raises(FeedUnavailable, match="is being written by process"):
            await seal(path)


STEPS = (
    "the file is begun",
    "the file is written",
    "the file has its name",
    "the segment is named",
    "the blocks are given up",
    "the blocks are gone",
)

KILLED = """
import asyncio, os, signal, sys
from changefeed.feeds.eventlog import EventLogWriter, SealPolicy

left = [int(sys.argv[3])]

def reached(step):
    if step == sys.argv[2]:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

async def seal():
    async with EventLogWriter.open(sys.argv[1]) as writer:
        await writer.seal(SealPolicy(everything=True), reached=reached)

asyncio.run(seal())
"""


async def killed_at(path: Path, step: str, times: int) -> None:
    command = [sys.executable, "-c", KILLED, str(path), step, str(times)]
    ended = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL, "it was not killed in this step"


@pytest.mark.parametrize("step", STEPS)
async def test_a_process_that_is_killed_in_any_step_leaves_every_change_once(
    path: Path, step: str
) -> None:
    before = await everything(path)
    async with EventLog.open(path) as open_meanwhile:
        await killed_at(path, step, 2)
        assert await everything(path) == before
        async with EventLogWriter.open(path, synchronous="off") as writer:
            await writer.append(full_records(100, 3000))
            await writer.seal(ALL)
        after = await everything(path)
        assert sum(map(len, after.values())) == 3100
        assert all(after[x][: len(before[x])] == before[x] for x in RANGES)
        assert [(await read_by_pages(open_meanwhile, x))[0] for x in RANGES] == [
            *after.values()
        ]
    named = {x.name for x in files(path)}
    assert not [x for x in named if x.endswith(".new")]
    with records_of(path) as file:
        rows = file.execute("SELECT first || '-' || last || '.parquet' FROM segments")
        assert named == {x for (x,) in rows}


def test_every_step_of_sealing_has_its_kill() -> None:
    folder = ROOT / "feeds/eventlog"
    source = "".join((folder / x).read_text() for x in ("sealer.py", "writer.py"))
    assert source.count('reached("') == len(STEPS)
    assert all(f'"{x}"' in source for x in STEPS)


def cut(data: bytes, chance: Random) -> bytes:
    return data[: chance.randrange(len(data))]


def flipped(data: bytes, chance: Random) -> bytes:
    place = chance.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << chance.randrange(8))]) + data[place + 1 :]


def wiped(data: bytes, chance: Random) -> bytes:
    place, size = chance.randrange(len(data)), chance.choice([16, 512])
    return data[:place] + bytes(len(data[place : place + size])) + data[place + size :]


@small_pieces
@pytest.mark.parametrize("hurt", [cut, flipped, wiped])
@pytest.mark.parametrize("seed", range(6))
async def test_of_a_damaged_segment_nothing_is_delivered_that_was_not_written(
    path: Path, hurt: Callable[[bytes, Random], bytes], seed: int
) -> None:
    before, chance = await everything(path), Random(seed)
    made = [x for x in await seal(path) if x.range_id == HURT]
    one = chance.choice(made)
    file = path / "segments" / HURT / f"{one.first}-{one.last}.parquet"
    data = file.read_bytes()
    changed = hurt(data, chance)
    file.write_bytes(changed)
    async with EventLog.open(path) as log:
        got, error = await read_by_pages(log, HURT)
        assert got == before[HURT][: len(got)]
        if changed == data:  # zeros where there were zeros
            assert error is None
            return
        assert isinstance(error, RangeDamaged)
        assert one.first - 1 <= len(got) < one.last
        assert f"changes {len(got) + 1} to " in str(error)
        behind = str(error).rsplit("--to=", 1)[1]
        place = int(behind.split("/")[1])
        assert place <= one.last
        rest, _ = await read_by_pages(log, HURT, behind)  # type: ignore[arg-type]
        assert rest == before[HURT][place : place + len(rest)]
        assert (await read_by_pages(log, SOUND)) == (before[SOUND], None)
    with pytest.raises(RangeDamaged):
        in_bulk(path, HURT, 0, len(before[HURT]))
    assert len(in_bulk(path, SOUND, 0, len(before[SOUND]))) == len(before[SOUND])


async def test_a_segment_that_is_gone_pauses_its_range_and_is_not_skipped(path: Path) -> None:
    before = await everything(path)
    (one, *_) = [x for x in await seal(path) if x.range_id == HURT]
    (path / "segments" / HURT / f"{one.first}-{one.last}.parquet").unlink()
    async with EventLog.open(path) as log:
        got, error = await read_by_pages(log, HURT)
        assert (got, type(error)) == ([], RangeDamaged)
        assert (await read_by_pages(log, SOUND)) == (before[SOUND], None)


async def test_a_damaged_block_is_not_sealed_and_other_ranges_are(path: Path) -> None:
    before = await everything(path)
    with records_of(path) as file:
        file.execute(
            "UPDATE blocks SET bodies = CAST(replace(bodies, 'n', 'm') AS BLOB)"
            " WHERE partition = 1 AND first = 257"
        )
    assert {x.range_id for x in await seal(path)} == {SOUND}
    with pytest.raises(RangeDamaged, match="changes 257 to "):
        await seal(path)
    async with EventLog.open(path) as log:
        got, error = await read_by_pages(log, HURT)
        assert (got, type(error)) == (before[HURT][:256], RangeDamaged)
    assert await written(path, SOUND) == before[SOUND]


async def test_files_that_no_segment_names_are_removed_and_others_stay(path: Path) -> None:
    await seal(path)
    kept = files(path)
    (path / "segments" / HURT / "1-7.parquet").write_bytes(b"left behind")
    (path / "segments" / HURT / "8-9.parquet.new").write_bytes(b"left behind")
    (path / "segments" / "notes").mkdir()
    (path / "segments" / "notes" / "1-7.parquet").write_bytes(b"somebody's")
    await seal(path)
    assert files(path) == kept | {path / "segments/notes/1-7.parquet"}

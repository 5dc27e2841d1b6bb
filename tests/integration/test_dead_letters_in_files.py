"""Files of dead letters that are full, locked, out of handles, or gone."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from changefeed.observers.dead_letters import DeadLetter, open_dead_letters
from changefeed.runtime.errors import StoreUnavailable
from tests.acceptance.test_operating import positions
from tests.support import make
from tests.support.commands import PLACES, QUICK, a_log_of, invoked, running
from tests.support.disks import fill, small_disk_at
from tests.support.handles import out_of_handles

KINDS = pytest.mark.parametrize("kind", ["sqlite", "jsonl"])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 200 kB."""
    with small_disk_at(tmp_path / "disk", "200k") as disk:
        yield disk


async def kept_at(address: str) -> list[DeadLetter]:
    async with open_dead_letters(address) as letters:
        return await make.whole(letters)


async def test_a_new_file_on_a_full_disk_may_be_made_later(small_disk: Path) -> None:
    ballast = fill(small_disk)
    address = f"sqlite:{small_disk}/letters.db"
    with pytest.raises(StoreUnavailable, match="full; make room on the disk"):
        await kept_at(address)
    ballast.unlink()
    assert await kept_at(address) == []


@KINDS
async def test_letters_on_a_full_disk_are_shown_and_a_new_one_is_kept_once_there_is_room(
    small_disk: Path, kind: str
) -> None:
    address = f"{kind}:{small_disk}/letters"
    large = make.letter(2, body=b"x" * 50_000)
    async with open_dead_letters(address) as letters:
        await letters.put(make.letter(1))
        ballast = fill(small_disk)
        with pytest.raises(OSError, match=r"full; make room|No space left"):
            await letters.put(large)
        assert await make.whole(letters) == [make.letter(1)]
        assert await kept_at(address) == [make.letter(1)]
        ballast.unlink()
        await letters.put(large)
    assert await kept_at(address) == [make.letter(1), large]


@KINDS
async def test_without_file_handles_the_start_is_tried_again(tmp_path: Path, kind: str) -> None:
    address = f"{kind}:{tmp_path}/letters"
    async with open_dead_letters(address) as letters:
        await letters.put(make.letter(1))
    with out_of_handles(), pytest.raises(StoreUnavailable, match="out of file handles"):
        await kept_at(address)
    assert await kept_at(address) == [make.letter(1)]


async def test_a_file_of_lines_that_is_deleted_or_moved_away_is_made_again(
    tmp_path: Path,
) -> None:
    path = tmp_path / "letters"
    async with open_dead_letters(f"jsonl:{path}") as letters:
        await letters.put(make.letter(1))
        path.unlink()
        assert await letters.list() == []
        await letters.put(make.letter(2))
        path.rename(tmp_path / "moved")
        await letters.put(make.letter(3))
        assert await make.whole(letters) == [make.letter(3)]
    assert await kept_at(f"jsonl:{tmp_path}/moved") == [make.letter(2)]


PICKY = """
def picky(changes):
    for change in changes:
        if change.value()["n"] == 7:
            raise ValueError("no sevens")
"""
ASIDE = (
    "--observer=observing:picky",
    "--set=observer.on_failure=dead-letter",
    "--set=observer.retry.attempts=2",
    "--set=observer.retry.max_delay=0.05",
    "--set=observer.dead_letters=sqlite:disk/letters.db",
)


async def test_a_host_waits_for_room_at_its_start(small_disk: Path) -> None:
    place = small_disk.parent
    a_log_of(20, place, parts=1)
    (place / "observing.py").write_text(PICKY)
    ballast = fill(small_disk)
    async with running("run", *PLACES, *QUICK, *ASIDE, cwd=place) as host:
        await host.says("make room on the disk", times=2)
        assert host.process.returncode is None
        ballast.unlink()
        await host.says('"event": "host.started"')
        await host.says('"event": "change.dead_lettered"')
        fill(small_disk)
        listed = invoked("dead-letters", "list", ASIDE[-1], cwd=place)
        assert (listed.returncode, "no sevens" in listed.stdout) == (0, True)
        await host.reaches(lambda: positions(place) == [20])

"""Pages that a planner keeps for its tasks: which slices they serve, and when they are gone."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from changefeed.feeds.feed import Position, RangeId
from changefeed.feeds.raw_pages import RawPage
from changefeed.pipeline.source.kept_pages import KeptPages, kept_pages
from changefeed.pipeline.source.position_order import PositionOrder
from changefeed.pipeline.source.reader import Slice

ONE, OTHER = RangeId("one"), RangeId("other")
ORDER = PositionOrder(order=int, position=lambda x: Position(str(x)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def pages(folder: Path) -> Iterator[KeptPages]:
    made = KeptPages(ORDER)
    yield made
    made.close()
    assert [*folder.glob(f"changefeed-pages-{os.getpid()}-*")] == []


def page(end: int, body: bytes = b"x") -> RawPage:
    return RawPage(position=Position(str(end)), body=body)


def piece(start: int, end: int, name: RangeId = ONE) -> Slice:
    return Slice(range_id=name, start=Position(str(start)), end=Position(str(end)))


def kept(pages: KeptPages, *ends: int, begin: int = 0, name: RangeId = ONE) -> None:
    for end in ends:
        pages.keep(name, Position(str(begin)), page(end))
        begin = end


def test_a_slice_within_what_was_read_names_the_file_and_others_name_none(
    pages: KeptPages,
) -> None:
    kept(pages, 10, 20, begin=5)
    path = pages.file_of(piece(5, 20))
    assert [x.position for x in kept_pages(path)] == ["10", "20"]
    assert pages.file_of(piece(7, 12)) == path
    assert pages.file_of(piece(4, 20)) == pages.file_of(piece(5, 21)) == ""
    assert pages.file_of(piece(5, 20, OTHER)) == ""


def test_a_page_behind_a_hole_is_not_kept_and_one_that_overlaps_is(pages: KeptPages) -> None:
    kept(pages, 10)
    kept(pages, 30, begin=20)
    assert pages.file_of(piece(0, 30)) == ""
    kept(pages, 15, begin=8)
    assert [x.position for x in kept_pages(pages.file_of(piece(0, 15)))] == ["10", "15"]


def test_pages_are_gone_when_the_next_batch_begins_and_when_the_planner_ends(
    pages: KeptPages, folder: Path
) -> None:
    kept(pages, 10)
    kept(pages, 10, name=OTHER)
    first = Path(pages.file_of(piece(0, 10)))
    pages.forget(ONE)
    assert not first.exists()
    assert pages.file_of(piece(0, 10)) == ""
    kept(pages, 20, begin=10)
    assert pages.file_of(piece(10, 20)) != str(first), "a task may still have it open"
    assert Path(pages.file_of(piece(0, 10, OTHER))).exists()
    pages.close()
    assert [*folder.iterdir()] == []


def test_a_disk_that_takes_nothing_costs_no_more_than_reading_again(
    pages: KeptPages, folder: Path
) -> None:
    kept(pages, 10)
    (home,) = folder.iterdir()
    Path(pages.file_of(piece(0, 10))).unlink()
    home.rmdir()
    kept(pages, 20, begin=10)
    assert pages.file_of(piece(0, 10)) == ""


def test_a_file_that_was_cut_is_not_taken_for_the_whole(pages: KeptPages) -> None:
    kept(pages, 10)
    path = Path(pages.file_of(piece(0, 10)))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(OSError, match="was cut"):
        list(kept_pages(str(path)))


def test_what_a_killed_planner_left_is_removed_and_what_a_living_one_has_is_not(
    pages: KeptPages, folder: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    )
    dead, alive = (
        folder / f"changefeed-pages-{x}-abc" for x in (done.stdout.strip(), os.getppid())
    )
    dead.mkdir()
    alive.mkdir()
    (dead / "1").write_bytes(b"x")
    kept(pages, 10)
    assert not dead.exists()
    assert alive.exists()

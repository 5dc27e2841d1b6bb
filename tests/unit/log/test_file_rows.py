"""Rows in files: what was acknowledged outlives everything, and nobody sees what may not."""

import errno
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import eq
from pathlib import Path
from random import Random

import pytest

from changefeed.log.stores import file_rows, frame_reader, frame_writer
from changefeed.log.stores.file_rows import close_frames, framed, holder_of
from changefeed.log.stores.frame_reader import FrameReader
from changefeed.log.stores.frame_writer import FrameWriter
from changefeed.runtime.clock import wall_clock_us
from tests.support.simulated_disk import SimulatedDisk

FOLDER = Path("/row/.frames")
LOG = FOLDER / "000000000001.log"


class Killed(BaseException):
    """The process that made the call is gone."""


class Row:
    """A row on a simulated disk, and what anybody has been told of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
        self.random = Random(seed)
        self.disk = SimulatedDisk(self.random)
        monkeypatch.setattr(file_rows, "os", self.disk)
        monkeypatch.setattr(frame_reader, "os", self.disk)
        monkeypatch.setattr(frame_writer, "os", self.disk)
        monkeypatch.setattr(file_rows, "fcntl", self.disk)
        monkeypatch.setattr(file_rows, "_LOCK_PAUSE", 0.0)
        monkeypatch.setattr(file_rows, "_LOOKED_THROUGH", 43)
        self.writer = FrameWriter(FOLDER, self.disk.make_folder)
        self.written: dict[int, list[bytes]] = {}
        self.acknowledged: dict[int, bytes] = {}
        self.seen: dict[int, bytes] = {}
        self.ends: set[int] = set()

    def append(self, count: int = 1) -> None:
        assert self.is_appended(count), "the row is over"

    def is_appended(self, count: int = 1) -> bool:
        first = len(self.acknowledged) + 1
        objects = [
            b"%d:" % n + self.random.randbytes(self.random.choice([1, 40, 300]))
            for n in range(first, first + count)
        ]
        for number, data in enumerate(objects, first):
            self.written.setdefault(number, []).append(data)
        if not self.writer.append(objects):
            return False
        self.acknowledged.update(enumerate(objects, first))
        return True

    def look(self) -> None:
        """See all that another process may see."""
        reader = FrameReader(FOLDER)
        for number in reader.numbers():
            data = self._there(reader, number)
            assert self.seen.setdefault(number, data) == data, f"frame {number} has changed"

    def take_over(self) -> None:
        """Be another process that goes on where the one before has left the row."""
        self.writer = FrameWriter(FOLDER, self.disk.make_folder)
        last = self.writer.take_over()
        assert last is not None, "the process before has ended"
        self.look()
        assert self.acknowledged.items() <= self.seen.items()
        assert [*self.seen] == [*range(1, last + 1)]
        assert all(data in self.written[number] for number, data in self.seen.items())
        self.acknowledged = {**self.seen}

    def close(self) -> int:
        """Close it, as another process does; check what is there then, and return the end."""
        end = close_frames(FOLDER, self.disk.make_folder)
        self.ends.add(end)
        assert len(self.ends) == 1, f"it was closed at {self.ends}"
        reader = FrameReader(FOLDER)
        found = {number: self._there(reader, number) for number in range(1, end + 1)}
        assert reader.frames([end + 1]) == [None]
        assert all(data in self.written[number] for number, data in found.items())
        assert self.acknowledged.items() <= found.items()
        assert self.seen.items() <= found.items()
        return end

    def close_too(self) -> None:
        """Be another process that closes it."""
        self.close()

    @staticmethod
    def _there(reader: FrameReader, number: int) -> bytes:
        (data,) = reader.read([(number, 0, sys.maxsize)])
        assert data is not None, f"frame {number} is missing"
        return data


@pytest.fixture
def row(monkeypatch: pytest.MonkeyPatch) -> Row:
    return Row(monkeypatch, 1)


@contextmanager
def killed_at(row: Row, call: int) -> Iterator[None]:
    def kill() -> None:
        raise Killed

    row.disk.between[call] = kill
    try:
        yield
    except Killed:
        row.disk.between.clear()
        row.disk.end_process()


def test_others_see_what_is_durable_and_not_before(row: Row) -> None:
    row.append(1)
    del row.disk.names[FOLDER]["durable"]
    row.append(2)
    row.look()
    assert row.seen == row.acknowledged
    sizes = [row.disk.size(LOG)]
    row.disk.fails["fdatasync"] = []
    row.disk.between[row.disk.calls + 2] = row.look  # it is written, and not synced
    row.append(2)
    assert sorted(row.seen) == [1, 2, 3]
    assert row.disk.size(LOG) > sizes[0]
    assert row.close() == 5


def row_killed_at(call: int, seed: int, monkeypatch: pytest.MonkeyPatch) -> Row:
    """Return a row whose writer has ended at a call of its disk."""
    row = Row(monkeypatch, seed)
    row.disk.short_writes = seed % 2 == 0
    with killed_at(row, call):
        for count in (1, 3, 1, 2):
            row.append(count)
            row.look()
    return row


@pytest.mark.parametrize("what", ["power is lost", "it is killed"])
def test_whatever_call_a_writer_ends_at_what_it_acknowledged_is_there(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in range(1, 40):
        for seed in range(12):
            row = row_killed_at(call, seed, monkeypatch)
            row.look()
            if what == "power is lost":
                row.disk.lose_power()
            row.close()
            row.disk.lose_power()  # what was decided stays so
            row.close()


@pytest.mark.parametrize("what", ["power is lost", "it is killed"])
def test_whatever_call_a_writer_ends_at_readers_and_the_next_writer_go_on_from_there(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in range(1, 40):
        for seed in range(8):
            row = row_killed_at(call, seed, monkeypatch)
            row.disk.end_process()
            if what == "power is lost":
                row.disk.lose_power()
            row.look()
            assert row.acknowledged.items() <= row.seen.items()
            with killed_at(row, row.disk.calls + seed + 1):
                row.take_over()
                row.append(2)
            row.disk.end_process()
            if what == "power is lost":
                row.disk.lose_power()
            row.take_over()
            row.append(1)
            row.disk.lose_power()
            row.close()


def test_one_process_writes_a_row_and_the_next_is_told_which(row: Row) -> None:
    row.append(2)
    assert FrameWriter(FOLDER, row.disk.make_folder).take_over() is None
    assert holder_of(FOLDER).isdigit()
    assert not FrameWriter(FOLDER, row.disk.make_folder).append([b"another's"])
    row.disk.end_process()
    row.disk.fails["pwrite"] = [OSError(errno.ENOSPC, "No space left on device")]
    assert FrameWriter(FOLDER, row.disk.make_folder).take_over() == 2  # it is not named


def test_what_a_failed_sync_has_lost_is_written_again_by_who_takes_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(20):
        row = Row(monkeypatch, seed)
        row.append(2)
        row.disk.fails["fdatasync"] = [OSError(errno.EIO, "Input/output error")]
        row.disk.fails["open"] = [OSError(errno.EIO, "Input/output error")]  # nor is it closed
        assert not row.is_appended(2)
        row.disk.end_process()
        row.take_over()
        row.append(1)
        row.disk.lose_power()
        row.close()


def test_a_writer_that_is_closed_at_any_call_answers_nothing_that_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    closed = 0
    for call in range(1, 40):
        for seed in range(6):
            row = Row(monkeypatch, seed)
            row.disk.between[call] = row.close_too
            if not all(map(row.is_appended, (1, 3, 1, 2, 1))):
                closed += 1
                assert row.writer.close() in row.ends
            row.close()
    assert closed > 100


def test_who_was_killed_while_closing_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for call in range(1, 20):
        for seed in range(10):
            row = Row(monkeypatch, seed)
            row.append(2)
            with killed_at(row, row.disk.calls + call):
                row.close()
            row.disk.lose_power()
            row.ends.clear()
            assert row.close() == 2


def test_wherever_a_frame_is_damaged_those_behind_it_are_found(row: Row) -> None:
    row.writer.append([b"1", b"2"])
    begin = row.disk.size(LOG)
    row.writer.append([bytes(row.disk.names[FOLDER][LOG.name].seen)])  # it holds frames
    end = row.disk.size(LOG)
    row.writer.append([b"CFR\nCFR\n", b"5"])
    extents = [(number, 0, sys.maxsize) for number in range(1, 6)]
    reader = FrameReader(FOLDER)
    whole = reader.read(extents)
    for place in [*range(begin, begin + 40), *range(end, end + 40)]:
        row.disk.flip(LOG, place)
        others = [n for n in range(5) if n != (2 if place < end else 3)]
        for x in (reader, FrameReader(FOLDER)):
            found = x.read(extents)
            assert found != whole
            assert [found[n] for n in others] == [whole[n] for n in others]
        row.disk.flip(LOG, place)
        assert reader.read(extents) == whole  # it was restored


def taken_over(row: Row, durable: int = 0) -> int | None:
    """Return where the next writer goes on; a loss of power may have taken what is durable."""
    row.disk.end_process()
    row.disk.names[FOLDER]["durable"].seen[:] = durable.to_bytes(8, "little") * 2
    row.writer = FrameWriter(FOLDER, row.disk.make_folder)
    return row.writer.take_over()


@pytest.mark.parametrize("durable", [2, 3, 4])
def test_a_writer_goes_on_behind_all_that_is_whole_whichever_frame_before_is_not(
    row: Row, durable: int
) -> None:
    row.writer.append([b"1", b"2", b"3", b"4"])
    row.disk.flip(LOG, row.disk.size(LOG) // 4 + 1)  # the second
    assert taken_over(row, durable) == 4
    row.writer.append([b"5"])
    extents = [(number, 0, 9) for number in range(1, 7)]
    assert FrameReader(FOLDER).read(extents) == [b"1", b"", b"3", b"4", b"5", None]
    place = row.disk.size(LOG) - 10
    row.disk.flip(LOG, place)  # the last: nobody knows where it ends
    assert taken_over(row, 5) == 5
    row.writer.append([b"6"])
    assert FrameReader(FOLDER).read(extents) == [b"1", b"", b"3", b"4", b"", b"6"]
    row.disk.flip(LOG, place)  # it was restored
    assert FrameReader(FOLDER).read(extents)[4:] == [b"5", b"6"]
    places = [row.disk.size(LOG) - 10, row.disk.size(LOG) + 1]
    row.writer.append([b"7", b"8"])
    for place in places:
        row.disk.flip(LOG, place)
    assert taken_over(row, 6) == 6  # what lies behind was never, also where it is whole
    row.writer.append([b"new"])
    assert FrameReader(FOLDER).read([(x, 0, 9) for x in (6, 7, 8)]) == [b"", b"new", None]


def test_what_lies_before_a_later_write_is_told_to_be_damaged_and_never_cut(row: Row) -> None:
    begins = [0]
    for count in (1, 1, 2, 1):
        row.append(count)
        begins.append(row.disk.size(LOG))
    extents, file = [(n, 0, sys.maxsize) for n in range(1, 6)], row.disk.names[FOLDER][LOG.name]
    truth, written = FrameReader(FOLDER).read(extents), bytes(file.seen)
    assert truth[2] is not None
    fourth = begins[2] + 32 + len(truth[2])
    for place in range(len(written)):
        row.disk.flip(LOG, place)
        last = taken_over(row)
        if place >= begins[3]:  # of the last write, which may be torn
            file.seen[:] = written[:place]
            assert (last, taken_over(row)) == (4, 4)
        elif fourth <= place < fourth + 32:  # a head before it may be of the same write
            assert last == 3
        else:
            assert last == 5
            found = FrameReader(FOLDER).read(extents)
            assert [*map(eq, found, truth)].count(False) == 1
        file.seen[:] = written


def test_a_file_that_was_cut_before_what_is_durable_has_room_for_that(row: Row) -> None:
    extents, ends = [(n, 0, sys.maxsize) for n in range(1, 7)], list[int]()
    for _ in range(5):
        row.append(1)
        ends.append(row.disk.size(LOG))
    file = row.disk.names[FOLDER][LOG.name]
    truth, written = FrameReader(FOLDER).read(extents), bytes(file.seen)
    for size in range(ends[-1]):
        file.seen[:] = written[:size]  # as a copy of it that was made while it was written
        assert taken_over(row, 5) == 5
        row.writer.append([b"6"])
        found = FrameReader(FOLDER).read(extents)
        whole = [*map(eq, found, truth)]
        assert whole == [x <= size for x in ends] + [False]
        assert found[5] == b"6"


def test_what_was_left_of_an_attempt_that_failed_shows_no_earlier_write(row: Row) -> None:
    row.append(1)
    attempt = framed(3, b"3", wall_clock_us() - 1) + b"3"  # it was behind another 2
    torn = framed(2, b"2", wall_clock_us()) + b"?"
    row.disk.names[FOLDER][LOG.name].seen += torn + attempt
    assert taken_over(row) == 1


def test_a_full_disk_gets_back_what_was_begun_and_the_writer_goes_on(row: Row) -> None:
    row.append(2)
    size = row.disk.size(LOG)
    for _ in range(3):
        row.disk.short_writes = True
        row.disk.fails["pwrite"] = [OSError(errno.ENOSPC, "No space left on device")]
        with pytest.raises(OSError, match="No space left"):
            row.append(2)
        assert row.disk.size(LOG) == size
    row.append(3)
    row.disk.lose_power()
    assert row.close() == 5


@pytest.mark.parametrize("seed", range(20))
def test_a_sync_that_fails_is_never_repeated_and_ends_the_frames_before_it(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = Row(monkeypatch, seed)
    row.append(2)
    row.disk.fails["fdatasync"] = [OSError(errno.EIO, "Input/output error")]
    if seed % 2:  # nor can it be said at once
        row.disk.fails["link"] = [OSError(errno.EIO, "Input/output error")]
    assert not row.is_appended(1)
    assert not row.is_appended(1)
    assert row.writer.close() == 2
    assert row.disk.syncs_after_failure == 0
    row.disk.lose_power()
    assert row.close() == 2


def test_files_follow_each_other_and_go_when_no_frame_of_them_is_needed(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frame_writer, "_FILE_BYTES", 500)

    def logs() -> Sequence[str]:
        return sorted(x for x in row.disk.names[FOLDER] if x.endswith(".log"))

    for n in range(20):
        if n == 19:
            row.writer.begin_file()
        row.append(1)
        row.look()
    assert row.seen == row.acknowledged
    assert len(logs()) > 3
    second = int(logs()[1].removesuffix(".log"))
    reader = FrameReader(FOLDER)
    reader.drop({*range(2, 21)})
    assert reader.frames([1]) != [None]  # which was to stay
    reader.drop({*range(1, second + 1)})
    assert reader.numbers() == range(second + 1, 21)
    assert reader.frames([1]) == [None]
    assert reader.frames([second]) != [None]
    reader.drop({*range(1, 21)})
    assert len(logs()) == 1  # it is written still
    row.disk.end_process()
    assert not FrameWriter(FOLDER, row.disk.make_folder).append([b"a seal"])  # nor begun again
    del row.disk.names[FOLDER]["durable"]
    assert close_frames(FOLDER, row.disk.make_folder) == 20
    reader.drop({*range(1, 21)})
    assert not logs()
    assert not reader.numbers()


def test_a_directory_that_was_replaced_acknowledges_nothing(row: Row) -> None:
    row.append(1)
    row.disk.names[FOLDER] = {**row.disk.names[FOLDER]}
    del row.disk.names[FOLDER][LOG.name]
    assert not row.is_appended(1)

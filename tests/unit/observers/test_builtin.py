"""The ready-made observers, on real files."""

import asyncio
import errno
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from changefeed.feeds.feed import Change, Operation
from changefeed.observers.builtin import CountObserver, JsonLinesObserver, LogObserver
from changefeed.observers.observer import CloseReason
from changefeed.runtime.errors import UserError
from tests.support import make
from tests.support.logs import captured_logs

CONTEXT = make.context()


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    """What is logged, down to the level of info."""
    with captured_logs() as logged:
        yield logged


def append(path: Path, *changes: Change, fsync: bool = False, range_id: str = "r1") -> None:
    observer = JsonLinesObserver(str(path), fsync=fsync)
    observer.open(make.context(range_id))
    if changes:
        observer.process(make.context(range_id), changes)


def sequences(path: Path) -> list[int]:
    assert path.read_bytes().endswith(b"\n")
    return [json.loads(x)["sequence"] for x in path.read_bytes().splitlines()]


def line(sequence: int) -> bytes:
    return b'{"range":"r1","sequence":%d}\n' % sequence


def test_a_change_becomes_one_line_with_its_body_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    append(
        file, make.change(3, operation=Operation.REPLACE, body=b'{"price": 1.50, "big": 1e400}')
    )
    assert file.read_bytes() == (
        b'{"range":"r1","sequence":3,"key":"k","id":"id-3","operation":"replace",'
        b'"committed_at":"2023-11-14T22:13:20.000003Z",'
        b'"body":{"price": 1.50, "big": 1e400}}\n'
    )


def test_no_range_leads_out_of_its_folder_or_into_another_s_file(tmp_path: Path) -> None:
    pattern = tmp_path / "{range}" / "out.jsonl"
    for name in ("..", "%2E%2E", "a/b", "a%2Fb"):
        append(pattern, make.change(1), range_id=name)
    assert sorted(x.name for x in tmp_path.iterdir()) == [
        "%252E%252E",
        "%2E%2E",
        "a%252Fb",
        "a%2Fb",
    ]


LONG = b'{"range":"r1","body":"' + b"x" * 200_000


@pytest.mark.parametrize("whole", [b"", line(1), line(1) + line(2)], ids=[0, 1, 2])
@pytest.mark.parametrize(
    "torn", [*(line(3)[:x] for x in (1, 5, 9, 20, -1)), LONG], ids=range(6)
)
def test_a_half_line_that_a_kill_left_behind_is_cut(
    tmp_path: Path, whole: bytes, torn: bytes
) -> None:
    file = tmp_path / "out.jsonl"
    file.write_bytes(whole + torn)
    append(file)
    assert file.read_bytes() == whole
    append(file, make.change(3))
    assert sequences(file)[-1] == 3


def test_a_half_line_of_another_writer_is_cut_before_the_next_append(tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    observer = JsonLinesObserver(str(file))
    observer.open(CONTEXT)
    observer.process(CONTEXT, [make.change(1)])
    with file.open("ab") as other:
        other.write(b'{"range":"r2","seq')
    observer.process(CONTEXT, [make.change(2)])
    assert sequences(file) == [1, 2]


def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "thesis.txt"
    file.write_text("Chapter one")
    with pytest.raises(FileExistsError, match="somebody else's; choose another path"):
        append(file, make.change(1))
    assert file.read_text() == "Chapter one"


def test_a_batch_that_does_not_fit_on_the_disk_is_cut_off_and_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out.jsonl"
    append(file, make.change(1))
    full = FullDisk(room=100)
    monkeypatch.setattr(os, "write", full.write)
    with pytest.raises(OSError, match=r"cannot append changes: .*; free some space") as failed:
        append(file, make.change(2), make.change(3))
    assert failed.value.errno == errno.ENOSPC
    assert failed.value.filename == str(file)
    assert full.room == 0  # a part of the batch had been written
    assert sequences(file) == [1]


class FullDisk:
    """Writes as much as there is room for, and then no more, as a disk does."""

    def __init__(self, room: int) -> None:
        self.room = room
        self._write = os.write

    def write(self, file: int, data: bytes | memoryview) -> int:
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = self._write(file, data[: self.room])
        self.room -= written
        return written


def test_with_fsync_the_file_and_its_folder_are_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
    )
    file = tmp_path / "out.jsonl"
    append(file, make.change(1), fsync=True)
    assert synced == [str(file), str(tmp_path), str(file)]
    synced.clear()
    append(file, make.change(2))
    assert synced == []


@pytest.mark.parametrize("path", ["out-{rnage}.jsonl", "out-{.jsonl", "{range}}"])
def test_a_path_with_anything_else_in_braces_is_refused(path: str) -> None:
    with pytest.raises(UserError, match=r"the only thing in braces can be \{range\}"):
        JsonLinesObserver(path)


def batch() -> Sequence[Change]:
    return [make.change(4), make.change(5, operation=Operation.DELETE), make.change(6)]


def test_a_batch_is_one_line_in_the_log(logs: list[Any]) -> None:
    LogObserver().process(CONTEXT, batch())
    assert logs == [
        {
            "event": "changes",
            "log_level": "info",
            "range": "r1",
            "first": 4,
            "last": 6,
            "changes": 3,
            "insert": 2,
            "delete": 1,
        }
    ]


def test_each_change_is_a_line_in_the_log_where_that_is_wanted(logs: list[Any]) -> None:
    LogObserver(each_change=True).process(CONTEXT, batch())
    assert [x["sequence"] for x in logs] == [4, 5, 6]
    assert logs[1] == {
        "event": "change",
        "log_level": "info",
        "range": "r1",
        "sequence": 5,
        "key": "k",
        "id": "id-5",
        "operation": "delete",
        "committed_at": "2023-11-14T22:13:20.000005+00:00",
    }


async def test_counts_are_logged_on_the_way_and_at_close(logs: list[Any]) -> None:
    observer = CountObserver(every=60)
    await observer.open(CONTEXT)
    for _ in range(5):
        await asyncio.sleep(25)
        await observer.process(CONTEXT, batch())
    await observer.close(CONTEXT, CloseReason.HANDED_OVER)
    assert [(x["event"], x["changes"], x["delete"]) for x in logs] == [
        ("counted so far", 9, 3),
        ("counted", 15, 5),
    ]
    assert logs[-1]["closed_because"] == "the lease is handed over to another host"
    assert observer.counts == {Operation.INSERT: 10, Operation.DELETE: 5}

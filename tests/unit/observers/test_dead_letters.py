"""Addresses, files of strangers, half lines, and replaying."""

import asyncio
import fcntl
import os
import re
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.feed import Change
from changefeed.observers.adapters import adapt
from changefeed.observers.dead_letters import (
    DeadLetter,
    MemoryDeadLetters,
    open_dead_letters,
    replay,
)
from changefeed.observers.dead_letters.stored import StoredDeadLetters
from changefeed.observers.observer import CloseReason, Context
from changefeed.runtime.errors import StoreRefused, StoreUnavailable, UserError
from changefeed.stores.kinds import LETTER_PARTS, LETTERS
from changefeed.stores.memory import MemoryStore
from changefeed.stores.sqlite.file import SqliteFile, rows
from changefeed.stores.store import Record
from tests.support import make

pytestmark = pytest.mark.real_time


@pytest.mark.parametrize(
    "address",
    [
        *("data/x.db", "memory:", "nats:x", "jsonl:", "sqlite:", "sqlite:a\0b"),
        *("jsonl:\ud800", "postgresql://[/d"),
    ],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(StoreRefused):
        open_dead_letters(address)


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
async def test_a_path_that_no_file_can_have_is_refused_and_not_missing(scheme: str) -> None:
    with pytest.raises(StoreRefused, match=r"x: File name too long"):
        async with open_dead_letters(f"{scheme}:{'x' * 5000}", OpenOptions(must_exist=True)):
            pass


async def refusal(address: str) -> str:
    with pytest.raises(StoreRefused) as refused:
        async with open_dead_letters(address):
            pass
    return str(refused.value)


async def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    strange = tmp_path / "strange.db"
    with sqlite3.connect(strange) as database:
        database.execute("create table theirs (x)")
    database.close()
    assert "belongs to another program" in await refusal(f"sqlite:{strange}")
    text = tmp_path / "notes.txt"
    text.write_text("remember the milk\n" * 20)
    assert "line 1 is not a dead letter" in await refusal(f"jsonl:{text}")
    assert "not a database" in await refusal(f"sqlite:{text}")


@pytest.mark.parametrize("scheme", ["sqlite", "jsonl"])
async def test_a_place_that_cannot_be_made_is_refused(tmp_path: Path, scheme: str) -> None:
    (tmp_path / "file").touch()
    assert f"{tmp_path}/file" in await refusal(f"{scheme}:{tmp_path}/file/letters")


@pytest.mark.parametrize(
    ("kept", "letter_id"),
    [
        (make.letter(1), "5f061e75:r1:1"),
        (make.letter(1, observer="b:B", fleet="sqlite:/a.db"), "1c48f7b6:r1:1"),
        (make.letter(1, observer="b:Bsqlite:/a.db"), "51144907:r1:1"),
    ],
)
def test_the_id_of_a_letter_is_for_good(kept: DeadLetter, letter_id: str) -> None:
    assert kept.id == letter_id


LETTER = (
    b'{"change":{"range_id":"r1","sequence":1,"key":"k","id":"id-1","operation":"insert",'
    b'"body":"eyJuIjoxfQ==","committed_us":1700000000000001,"previous":null},"failure":'
    b'{"kind":"ValueError","text":"no","trace":"line 1\\nline 2"},"attempts":10,"host":"anna",'
    b'"epoch":7,"failed_us":1700000000123456,"feed":"orders","observer":"","fleet":""}'
)


@pytest.mark.parametrize(
    "torn",
    [
        b"{",
        b'{"id":"r',
        b'{"id":"' + b"x" * 10_000,
        b'{"removed":"r1',
        b"\0" * 4096,
        b'{"id":"\xc3',
    ],
    ids=lambda x: repr(x[:16]),
)
async def test_what_a_crash_left_of_a_line_is_cut_off_by_the_next_one(
    tmp_path: Path, torn: bytes
) -> None:
    path = tmp_path / "d.jsonl"
    async with open_dead_letters(f"jsonl:{path}") as letters:
        await letters.put(make.letter(1))
        whole = path.read_bytes()
        path.write_bytes(whole + torn)
        assert await make.whole(letters) == [make.letter(1)]
        assert await letters.remove(make.letter(1).id)
        assert path.read_bytes() == whole + b'{"removed":"5f061e75:r1:1"}\n'


LATE = LETTER.replace(b"1700000000123456", b"9223372036854775807")


@pytest.mark.parametrize(
    "strange",
    [
        b'{"level":"info","text":"hello"}\n',
        b'{"id":"r1:2","tried":3}\n',
        b'{"removed":null}\n',
        b"[1, 2]\n",
        b"\n",
        b'{"removed":"\xff"}\n',
        b'{"id":"r1:2","letter":{"change"\n',
        b'{"id":"r1:1","letter":%b}\n' % LATE,
        b'{"x":' + b"[" * 100_000 + b"\n",
        b"x" * 5_000_000 + b"\n",
        b"remember the milk",
        b'{"level":"in',
    ],
    ids=lambda x: repr(x[:16]),
)
async def test_a_line_that_is_no_letter_is_refused_with_its_number_and_stays(
    tmp_path: Path, strange: bytes
) -> None:
    path = tmp_path / "d.jsonl"
    async with open_dead_letters(f"jsonl:{path}") as letters:
        await letters.put(make.letter(1))
        kept = path.read_bytes() + strange
        path.write_bytes(kept)
        said = (
            re.escape("line 2 is not a dead letter (")
            + ".*"
            + re.escape(f"); mend or move the file: '{path}'")
        )
        for call in (
            letters.list(),
            letters.get(make.letter(1).id),
            letters.put(make.letter(2)),
            letters.remove(make.letter(1).id),
        ):
            with pytest.raises(OSError, match=said):
                await call
        assert "line 2 is not a dead letter" in await refusal(f"jsonl:{path}")
        assert path.read_bytes() == kept


async def test_a_letter_in_sqlite_is_on_the_disk_when_it_is_put(tmp_path: Path) -> None:
    file = SqliteFile(tmp_path / "d.db", keeps_changes=True)
    await file.open()
    (row,) = await file.read(lambda x: rows(x, "pragma synchronous"))
    await file.close()
    assert row == {"synchronous": 2}  # full: each commit waits for the disk


async def test_writers_of_one_file_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    async with open_dead_letters(f"jsonl:{path}") as letters:
        with path.open("rb") as owned:
            fcntl.flock(owned, fcntl.LOCK_EX)
            putting = asyncio.create_task(letters.put(make.letter(1)))
            await asyncio.sleep(0.1)
            assert not putting.done()
            assert path.read_bytes() == b""
        await putting
        assert await make.whole(letters) == [make.letter(1)]


async def test_a_letter_is_on_the_disk_before_it_is_taken_for_put(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_disk(_handle: int) -> None:
        raise OSError(5, "disk gone")

    async with open_dead_letters(f"jsonl:{tmp_path}/d.jsonl") as letters:
        await letters.put(make.letter(1))  # by a process that was killed before the disk had it
        monkeypatch.setattr(os, "fsync", no_disk)
        for put in (make.letter(1), make.letter(2)):
            with pytest.raises(OSError, match="disk gone"):
                await letters.put(put)
        assert await make.whole(letters) == [make.letter(1)]


def in_store(store: MemoryStore) -> StoredDeadLetters:
    return StoredDeadLetters(store, where="the store")


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"head":{},"parts":[],"stamp":0}'])
async def test_a_record_that_is_no_letter_is_an_oserror_that_names_it(body: bytes) -> None:
    store, letter = MemoryStore(), make.letter(1)
    letters = in_store(store)
    await store.put(Record(kind=LETTERS, key=letter.id, body=body))
    calls = [letters.list(), letters.get(letter.id), letters.put(letter)]
    for call in calls:
        with pytest.raises(OSError, match=rf"the store: .* '{letter.id}' cannot be read"):
            await call


async def test_a_letter_whose_text_somebody_deleted_is_shown_and_discarded() -> None:
    store, letter = MemoryStore(), make.letter(1)
    letters = in_store(store)
    await letters.put(letter)
    (part,) = (await store.list({LETTER_PARTS})).records
    await store.delete(LETTER_PARTS, part.key, part.version)
    for call in (letters.get(letter.id), letters.put(letter)):
        with pytest.raises(OSError, match=rf"'{letter.id}' cannot be read .*missing"):
            await call
    assert await letters.list() == [letter.head]
    assert await letters.remove(letter.id)


LARGE = make.letter(1, body=b"x" * 1_000_000)


class Upset(MemoryStore):
    """Raises in the place of the answer to the write of a kind, once."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    async def put(self, record: Record) -> Record | None:
        written = await super().put(record)
        if record.kind == self.kind:
            self.kind = ""
            raise StoreUnavailable("no answer")
        return written


@pytest.mark.parametrize("kind", [LETTERS, LETTER_PARTS])
async def test_a_large_letter_whose_write_got_no_answer_can_be_put_again(kind: str) -> None:
    letters = in_store(Upset(kind))
    with pytest.raises(OSError, match="no answer"):
        await letters.put(LARGE)
    await letters.put(LARGE)
    assert await make.whole(letters) == [LARGE]


async def test_what_two_hosts_put_at_once_is_one_letter_and_one_text() -> None:
    class Late(MemoryStore):
        async def get(self, kind: str, key: str) -> Record | None:
            found = await super().get(kind, key)
            await asyncio.sleep(0)
            return found

    store = Late()
    await asyncio.gather(*(in_store(store).put(LARGE) for _ in range(3)))
    assert (await store.list({LETTERS})).total == 1
    assert (await store.list({LETTER_PARTS})).total == 4
    assert await in_store(store).remove(LARGE.id)
    assert not (await store.list({LETTER_PARTS})).records


class Recording:
    """Handles one change, if it can."""

    calls: list[object]

    def __init__(self, calls: list[object]) -> None:
        self.calls = calls

    def open(self, context: Context) -> None:
        self.calls.append(("open", context.range.id, context.epoch))

    def process(self, changes: Sequence[Change]) -> None:
        self.calls.append([x.sequence for x in changes])

    def close(self, _context: Context, reason: CloseReason) -> None:
        self.calls.append(reason)


async def test_a_replayed_letter_is_handled_by_a_fresh_observer_and_then_gone() -> None:
    letters, calls = MemoryDeadLetters(), list[object]()
    await letters.put(make.letter(5))
    await replay(letters, make.letter(5), adapt(Recording, {"calls": calls}))
    assert calls == [("open", "r1", 7), [5], CloseReason.STOPPING]
    assert await letters.list() == []


async def test_what_the_feed_could_not_read_is_given_to_no_observer() -> None:
    letter, calls = make.letter(make.change(5, unreadable="no id")), list[object]()
    with pytest.raises(UserError, match="no id"):
        await replay(MemoryDeadLetters(), letter, adapt(Recording, {"calls": calls}))
    assert calls == []


async def test_with_manual_checkpoints_a_replay_is_done_when_it_is_acknowledged() -> None:
    later = threading.Event()

    class Acknowledging:
        def process(self, context: Context, changes: Sequence[Change]) -> None:
            def acknowledge() -> None:
                later.wait(10)
                context.acknowledge(changes[0])

            threading.Thread(target=acknowledge).start()

    letters = MemoryDeadLetters()
    await letters.put(make.letter(5))
    acknowledging = adapt(Acknowledging)
    task = asyncio.create_task(replay(letters, make.letter(5), acknowledging, manual=True))
    await asyncio.sleep(0.05)
    assert await letters.get(make.letter(5).id) is not None
    later.set()
    await task
    assert await letters.list() == []

"""The small samples, run as their README says, and as no README would."""

import asyncio
import json
import re
import shlex
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from changefeed.feeds.feed import Change
from changefeed.observers.observer import CloseReason
from changefeed.testing.history import difference
from changefeed.testing.observers import RecordingContext
from samples.ledger import booking
from samples.vectors.search import search
from samples.vectors.store import VectorStore
from samples.word_counts.counting import WordCounts, newest_totals
from tests.support import make
from tests.support.commands import QUICK, changefeed, running
from tests.support.processes import Running

ROOT = Path(__file__).parents[2]
FROM_HERE = {"PYTHONPATH": str(ROOT)}
EVERYONE = r"(?=.*'cash': 4250)(?=.*'rent': 4500).*'books': 1250"
"""What is shown of balances once all bookings are done."""


def commands(sample: str) -> tuple[list[list[str]], list[str]]:
    """Return what samples/README.md says to produce, and to run."""
    text = (ROOT / "samples/README.md").read_text().replace("\\\n", " ")
    block = next(x for x in re.findall(r"```\n(.*?)```", text, re.DOTALL) if sample in x)
    lines = [shlex.split(x)[1:] for x in block.splitlines() if x.startswith("changefeed ")]
    (hosts,) = [x for x in lines if x[0] == "run"]
    return [x for x in lines if x[0] == "produce"], hosts


async def as_the_readme_says(sample: str, place: Path, *, until: str) -> str:
    produce, hosts = commands(f"samples/{sample}/")
    (place / "samples").symlink_to(ROOT / "samples")
    assert [changefeed(*x, cwd=place).returncode for x in produce] == [0] * len(produce)
    async with running(*hosts, *QUICK, cwd=place, env=FROM_HERE) as fleet:
        await fleet.reaches(lambda: re.search(until, everything(place, fleet)) is not None)
        await fleet.stops()
    return fleet.printed


def everything(place: Path, fleet: Running) -> str:
    """Return what was printed, and the names of the files that were made."""
    files = " ".join(str(x) for x in place.glob("data/**/*") if x.suffix in (".json", ".db"))
    return f"{fleet.printed}\n{files}\n{balances(place)}"


def balances(place: Path) -> dict[str, int]:
    """Return those of whichever sample keeps some."""
    files = [place / f"data/{x}.db" for x in ("ledger", "payments")]
    file = next((x for x in files if x.exists()), None)
    if file is None:
        return {}
    with closing(sqlite3.connect(file)) as ledger:
        try:
            return dict(ledger.execute("select account, cents from balances").fetchall())
        except sqlite3.OperationalError:  # not made yet
            return {}


async def test_hello_greets_everybody_once(tmp_path: Path) -> None:
    printed = await as_the_readme_says("hello", tmp_path, until=r"(?s)(hello,.*){5}")
    greeted = re.findall(r"hello, (\w+) of", printed)
    assert sorted(greeted) == ["Ada", "Blaise", "Carl", "Diophantus", "Emmy"]


def test_the_code_in_readme_is_the_code_of_hello() -> None:
    code = (ROOT / "samples/hello/greeting.py").read_text()
    shown, _ = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert code.endswith(shown)


async def test_the_ledger_has_the_balances_of_its_bookings(tmp_path: Path) -> None:
    await as_the_readme_says("ledger", tmp_path, until=EVERYONE)
    assert balances(tmp_path) == {"cash": 4250, "rent": 4500, "books": 1250}


async def test_payments_are_added_once_and_told_in_the_outbox_once(tmp_path: Path) -> None:
    await as_the_readme_says("exactly_once", tmp_path, until=EVERYONE)
    assert balances(tmp_path) == {"cash": 4250, "rent": 4500, "books": 1250}
    with closing(sqlite3.connect(tmp_path / "data/payments.db")) as payments:
        told = payments.execute("select message from outbox").fetchall()
    made = (ROOT / "samples/exactly_once/payments.jsonl").read_text().splitlines()
    paid = [{"paid": x["account"], "cents": x["cents"]} for x in map(json.loads, made)]
    assert difference(map(str, paid), (str(json.loads(x)) for (x,) in told)) == ({}, {})


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEDGER", str(tmp_path / "data/ledger.db"))
    return tmp_path


def booked(sequence: int, cents: int) -> Change:
    return make.change(sequence, key="cash", body=b'{"cents": %d}' % cents)


def test_a_booking_that_comes_again_counts_once(ledger: Path) -> None:
    booking.book(make.context(), [booked(1, 5), booked(2, 7)])
    booking.book(RecordingContext(epoch=2), [booked(2, 7), booked(3, 9)])
    assert balances(ledger) == {"cash": 21}


def test_a_former_owner_books_nothing_any_more(ledger: Path) -> None:
    booking.book(RecordingContext(epoch=2), [booked(1, 5)])
    with pytest.raises(booking.FormerOwner, match="epoch 2 by now"):
        booking.book(RecordingContext(epoch=1), [booked(1, 5), booked(2, 7)])
    assert balances(ledger) == {"cash": 5}
    booking.book(RecordingContext(epoch=2), [booked(2, 7)])
    assert balances(ledger) == {"cash": 12}


async def test_two_feeds_reach_their_observers_in_one_process(tmp_path: Path) -> None:
    until = r"(?s)(hello,.*){5}'cash': 4250"
    await as_the_readme_says("two_feeds", tmp_path, until=until)
    assert balances(tmp_path) == {"cash": 4250, "rent": 4500, "books": 1250}


async def test_words_are_counted_and_what_spammers_say_is_not(tmp_path: Path) -> None:
    ready = r"(?s)words.*json.*words.*json"
    await as_the_readme_says("word_counts", tmp_path, until=ready)
    counts = totals(tmp_path / "data/words")
    assert (counts["to"], counts["well"], counts["for"], counts["buy"]) == (2, 3, 2, 0)


async def test_what_was_written_down_and_not_checkpointed_is_not_counted_again(
    tmp_path: Path,
) -> None:
    lines = [make.change(n, body=b'{"by": "ophelia", "text": "rue"}') for n in (1, 2, 3)]
    first = WordCounts(str(tmp_path), seconds=0)
    context = RecordingContext(epoch=1)
    await first.open(context)
    await first.process(context, lines[:2])
    while not context.checkpoints:  # noqa: ASYNC110 - the context only remembers
        await asyncio.sleep(0.01)
    await first.close(context, CloseReason.LEASE_LOST)
    assert context.checkpoints == [2]

    late = RecordingContext(epoch=2)  # the checkpoint was lost: all of it comes again
    second = WordCounts(str(tmp_path), seconds=0)
    await second.open(late)
    await second.process(late, lines)
    while not late.checkpoints:  # noqa: ASYNC110 - likewise
        await asyncio.sleep(0.01)
    await second.close(late, CloseReason.STOPPING)
    assert (totals(tmp_path), late.checkpoints) == ({"rue": 3}, [3])


def totals(directory: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    for folder in directory.iterdir():
        counts.update(newest_totals(folder).words)
    return counts


ARTICLES = 8


async def test_articles_are_found_by_what_they_mean(tmp_path: Path) -> None:
    vectors = tmp_path / "data/vectors.db"
    (tmp_path / "samples").symlink_to(ROOT / "samples")
    text = (ROOT / "samples/vectors/README.md").read_text().replace("\\\n", " ")
    commands = re.findall(r"^changefeed (.*)$", text, re.MULTILINE)
    produce, dry, run = (x.split() for x in commands)
    assert changefeed(*produce, cwd=tmp_path).returncode == 0
    async with running(*dry, *QUICK, cwd=tmp_path, env=FROM_HERE) as host:
        await host.says("lease.acquired")
        await host.stops()
    assert "(nothing was done)" in host.said
    assert not vectors.exists()
    async with running(*run, *QUICK, cwd=tmp_path, env=FROM_HERE) as host:
        await host.reaches(lambda: vectors.exists() and count(vectors) == ARTICLES)
        await host.stops()
    found = await search(vectors, "a recipe for the kitchen", 2)
    assert {x[1] for x in found} == {"a1", "a5"}


def count(vectors: Path) -> int:
    return len(VectorStore(vectors).made_of([f"a{n}" for n in range(1, ARTICLES + 1)]))

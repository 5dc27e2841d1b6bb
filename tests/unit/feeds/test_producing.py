"""What a producer takes for the directory of a log, and what it refuses."""

import asyncio
from pathlib import Path

import pytest

from changefeed.feeds.errors import FeedRefused
from changefeed.log.directory.feed import EventLog
from changefeed.log.producing import log_directory, open_producer

pytestmark = pytest.mark.real_time


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("address", "directory"),
    [
        ("data/log", "data/log"),
        ("eventlog:data/log", "data/log"),
        ("eventlog:broker://x", "broker:/x"),
        ("./a:b", "a:b"),
        ("/logs/a:b", "/logs/a:b"),
        ("logs/brokers://x", "logs/brokers:/x"),
        ("2026-01-31T12:00", "2026-01-31T12:00"),
    ],
)
def test_a_path_is_a_path_also_with_a_colon(address: str, directory: str) -> None:
    assert log_directory(address) == Path(directory)


def test_what_an_earlier_mistake_has_made_does_not_make_it_right(here: Path) -> None:
    (here / "broker:" / "h").mkdir(parents=True)
    with pytest.raises(FeedRefused, match="brokers://h"):
        log_directory("broker://h")


@pytest.mark.parametrize(
    ("address", "advice"),
    [
        ("broker://h:7070/orders", " brokers://h:7070/orders?"),
        ("BROKERS://h:7070/orders", " brokers://h:7070/orders?"),
        ("brokers+tsl://h/orders", " brokers+tls://h/orders?"),
        ("Eventlog:orders", " eventlog:orders?"),
        ("cosmos://x/y/z", " brokers://HOST:PORT/COLL"),
        ("sqlite:x", " ./sqlite:x"),
        ("eventlog:", "'eventlog:'"),
        ("", "''"),
    ],
)
def test_another_address_is_refused_and_nothing_is_made(
    here: Path, address: str, advice: str
) -> None:
    async def produce() -> None:
        async with open_producer(address):
            pass

    with pytest.raises(FeedRefused) as refused:
        asyncio.run(produce())
    assert advice in str(refused.value)
    assert list(here.iterdir()) == []


@pytest.mark.parametrize("address", ["~nobody-has-it/log", "eventlog:~nobody-has-it/log"])
def test_a_log_in_a_home_that_nobody_has_is_refused(address: str) -> None:
    with pytest.raises(FeedRefused, match="~nobody-has-it"):
        log_directory(address)


def test_a_log_is_made_where_there_is_none_and_only_if_that_is_wanted(here: Path) -> None:
    async def produce(*, create: bool) -> None:
        async with open_producer("log", create=create, parts=1) as producer:
            await producer.send("k", 1)

    (here / "log").mkdir()
    with pytest.raises(FeedRefused):
        asyncio.run(produce(create=False))
    assert list((here / "log").iterdir()) == []
    for create in (True, True, False):
        asyncio.run(produce(create=create))

    async def appended() -> int:
        async with EventLog.open(here / "log") as log:
            [whole] = await log.ranges()
            return len((await log.read(whole, await log.start(whole, "beginning"), 9)).changes)

    assert asyncio.run(appended()) == 3

"""Producing from code that is not async."""

import asyncio
from pathlib import Path

import pytest

from changefeed import FeedRefused, Record, open_sync_producer
from changefeed.log.directory.feed import EventLog
from changefeed.testing.feed_harness import whole


def test_changes_are_appended_from_a_program_without_a_loop(tmp_path: Path) -> None:
    with open_sync_producer(tmp_path / "log", parts=2) as producer:
        producer.send("k", {"n": 1})
        producer.send_many([Record(key="k", body=b"2"), Record(key="j", body=b"3")])
        later = producer.submit([Record(key="k", body=b"4")])
        producer.flush()
        assert later.result(5) is None
    assert asyncio.run(whole_log(tmp_path / "log")) == 4


async def whole_log(path: Path) -> int:
    async with EventLog.open(path) as log:
        return sum([len(await whole(log, x)) for x in await log.ranges()])


def test_an_error_comes_out_of_the_call_or_out_of_the_block(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no log")
    with pytest.raises(FeedRefused), open_sync_producer(tmp_path / "file"):
        pass

    def fail() -> None:
        with open_sync_producer(tmp_path / "log") as producer:
            with pytest.raises(FeedRefused, match="JSON"):
                producer.send("k", object())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

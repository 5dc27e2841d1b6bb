"""Eras of a real event log, as planners, tasks and hosts live through them; without Spark."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from changefeed.feeds.feed import RangeId
from changefeed.leases.keymap import KeyMap
from changefeed.pipeline.lease_offsets import leases_of, offset_of
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.planning import first_offset, next_offset, plan_slices
from changefeed.pipeline.source.reader import Access
from changefeed.pipeline.source.record_batches import EVERYTHING, Envelope
from tests.support.pipeline_feeds import a_log, append_to
from tests.support.succession import replace_partitions

ENVELOPE = Envelope(columns=EVERYTHING)
KEYS = [f"k{n}" for n in range(8)]
WHOLE = RangeId("e1.p01.v00-ff")
LOW, HIGH = RangeId("e2.p01.v00-7f"), RangeId("e2.p01.v80-ff")
AGAIN = RangeId("e3.p01.v00-ff")

Row = tuple[int, str, int, str, int]
"""Generation, range, sequence, key, and what the body says."""


class Log:
    """A log of one part, to which 8 keys write ``count`` changes each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.address = a_log(path, {}, parts=1)
        self._written = 0

    def write(self, count: int) -> None:
        append_to(self.path, dict.fromkeys(KEYS, count))
        self._written += count

    def era(self, closing: Sequence[RangeId], *bounds: tuple[int, int]) -> None:
        opening = [(0, low, high) for low, high in bounds]
        asyncio.run(replace_partitions(self.path, closing, opening))

    def access(self) -> "closing[Access]":
        return closing(open_access(self.address))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path / "log")


def rows(access: Access, start: Offset, end: Offset, *, changes: int = 10**6) -> list[Row]:
    return [
        (
            x["generation"],
            x["range"],
            x["sequence"],
            x["key"],
            msgspec.json.decode(x["body"])["n"],
        )
        for slice_ in plan_slices(access, start, end, changes=changes)
        for name, part in access.read(slice_)
        for x in ENVELOPE.batch(name, part, slice_.generation).to_pylist()
    ]


def batches(access: Access, start: Offset, limit: int | None = None) -> Iterator[list[Row]]:
    while (end := next_offset(access, start, limit=limit)) != start:
        yield rows(access, start, end)
        start = end


def by_key(read: Sequence[Row]) -> dict[str, list[int]]:
    return {key: [x[4] for x in read if x[3] == key] for key in KEYS}


@pytest.mark.parametrize("limit", [None, 10])
def test_eras_that_came_and_went_while_no_query_ran_are_read_one_after_the_other(
    log: Log, limit: int | None
) -> None:
    log.write(3)
    log.era([WHOLE], (0, 127), (128, 255))
    log.write(2)
    log.era([LOW, HIGH], (0, 255))
    log.write(1)
    with log.access() as access:
        start = first_offset(access, "beginning")
        assert start.marks.keys() == {WHOLE}
        read = list(batches(access, start, limit))
    every = [x for y in read for x in y]
    assert by_key(every) == {x: [0, 1, 2, 0, 1, 0] for x in KEYS}
    assert {(x[1], x[0]) for x in every} == {(WHOLE, 0), (LOW, 1), (HIGH, 1), (AGAIN, 2)}
    assert limit is None or max(map(len, read)) == limit


def test_hosts_get_leases_also_for_what_is_over_so_that_they_do_not_read_it_again(
    log: Log,
) -> None:
    log.write(3)
    with log.access() as access:
        start = first_offset(access, "beginning")
        read = [x for y in batches(access, start) for x in y]
        log.era([WHOLE], (0, 127), (128, 255))
        log.write(2)
        told = next_offset(access, start)  # the end, and who goes on
        halfway = next_offset(access, told, limit=6)
        assert WHOLE not in halfway.marks
        read += rows(access, told, halfway)
        leases = {x.range_id: x for x in leases_of(halfway, access)}
        assert {name: x.ended for name, x in leases.items()} == {
            WHOLE: True,
            LOW: False,
            HIGH: False,
        }
        assert {x.range_id for x in KeyMap(leases.values()).readable()} == {LOW, HIGH}
        back = offset_of(list(leases.values()), access)
        read += [x for y in batches(access, back) for x in y]
    assert by_key(read) == {x: [0, 1, 2, 0, 1] for x in KEYS}


def test_an_end_that_is_told_says_to_hosts_what_they_create_after_it(log: Log) -> None:
    log.write(3)
    log.era([WHOLE], (0, 127), (128, 255))
    log.write(2)
    with log.access() as access:
        offset = first_offset(access, "beginning")
        while LOW not in offset.marks:
            offset = next_offset(access, offset, limit=8)
        only = offset.with_marks({WHOLE: offset.marks[WHOLE]})  # as if both still waited
        (lease,) = leases_of(only, access)
    assert lease.range_id == WHOLE
    assert lease.position == offset.marks[WHOLE].position
    assert {x.child.range.id: x.child.start for x in KeyMap([lease]).new_leases} == {
        name: offset.marks[name].position for name in (LOW, HIGH)
    }

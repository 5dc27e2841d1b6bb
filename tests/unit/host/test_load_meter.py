"""How busy a range keeps its owner, in virtual seconds."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from changefeed.host.load_meter import LoadMeter, SharedTime, coarse
from changefeed.leases.lease import HostName, Incarnation, Lease
from tests.support import make

A, B = HostName("a"), HostName("b")
OWNED = make.lease("r0").taken_by(A, Incarnation("a-1"))


@dataclass
class Time:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def metered(lease: Lease, time: Time, shared: SharedTime | None = None) -> LoadMeter:
    return LoadMeter(lease, cooldown=60, shared=shared or SharedTime(time))


@contextmanager
def in_call(meter: LoadMeter, changes: int = 0) -> Iterator[None]:
    meter.count(1)
    yield
    meter.count(-1, done=changes)


def busy_for(meter: LoadMeter, time: Time, busy: float, of: float) -> Lease:
    """Spend a while, a part of it in a call; return the lease that is written then."""
    with in_call(meter):
        time.now += busy
    time.now += of - busy
    return meter.written_to(OWNED)


def test_a_call_counts_while_it_runs() -> None:
    time = Time()
    meter = metered(OWNED, time)
    with in_call(meter):
        time.now += 10
        assert meter.written_to(OWNED).load == 1.0
    time.now += 1000
    assert meter.written_to(OWNED).load == 0.0


@pytest.mark.parametrize("one_core", [False, True])
def test_how_calls_happen_to_meet_does_not_change_what_ranges_need(one_core: bool) -> None:  # noqa: FBT001
    """Each has 0.4 s of work in each second. On one core, the second waits for the first."""
    time = Time()
    shared = SharedTime(time)
    meters = [metered(OWNED, time, shared) for _ in range(2)]
    found = list[list[float]]()
    for second in range(600):
        later = 0.4 * abs(math.sin(second / 40))
        ends = 0.8 if one_core else later + 0.4
        for at, n, more in [(0.0, 0, 1), (later, 1, 1), (0.4, 0, -1), (ends, 1, -1)]:
            time.now = second + at
            meters[n].count(more, done=0 if more > 0 else 4)
        time.now = second + 1.0
        found.append([x.written_to(OWNED).load or 0.0 for x in meters])
    if one_core:
        assert all(0.75 <= sum(x) <= 0.9 for x in found[60:]), found
    else:
        assert found == [[0.4, 0.4]] * 600


@pytest.mark.parametrize(("later", "load"), [((3000, 5000), 3.0), ((250,), 1.0)])
def test_a_range_needs_what_would_keep_it_up_or_where_it_catches_up_all_that_it_gets(
    later: tuple[int, ...], load: float
) -> None:
    time = Time()
    meter = metered(OWNED, time)
    meter.is_behind(1000)
    for behind in later:
        with in_call(meter, 1000):
            time.now += 10
        meter.is_behind(behind)
    assert meter.written_to(OWNED).load == load


def test_what_nothing_was_done_of_needs_the_time_that_it_takes() -> None:
    time = Time()
    meter = metered(OWNED, time)
    meter.is_behind(10)
    with in_call(meter, 1):
        time.now += 10
        meter.is_behind(90)
        assert meter.written_to(OWNED).load == 1.0


def test_reads_count_that_brought_changes_and_none_that_may_have_waited_for_some() -> None:
    time = Time()
    meter = metered(OWNED, time)
    time.now += 10
    meter.has_read(3.0, changes=900, limit=1000)
    meter.has_read(5.0, changes=1, limit=1000)
    meter.has_read(0.5, changes=0, limit=1000)
    assert meter.written_to(OWNED).load == 0.3


def test_a_new_owner_goes_on_from_the_load_that_it_found() -> None:
    time = Time()
    found = OWNED.with_load(1.0, cooling=False)
    meter = metered(found, time)
    assert meter.written_to(found).load == 1.0
    assert 0.6 < (busy_for(meter, time, 0, 10).load or 0) < 0.8


@pytest.mark.parametrize(
    ("load", "stored", "written"),
    [
        (0.31, None, 0.3),
        (0.33, 0.3, 0.3),
        (0.3399, 0.3, 0.3),
        (0.341, 0.3, 0.35),
        (0.02, 0.05, 0.05),
        (0.004, 0.05, 0.0),
        (5.0, None, 5.0),
        (50.0, None, 16.0),
        (-0.5, None, 0.0),
    ],
)
def test_a_load_is_stored_in_steps_and_stays_on_one_while_it_is_near(
    load: float, stored: float | None, written: float
) -> None:
    assert coarse(load, stored) == written

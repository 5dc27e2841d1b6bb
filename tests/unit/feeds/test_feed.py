"""The values of a feed: the time of a change, as calendars have it."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from changefeed.feeds.feed import MAX_TIME_US, MIN_TIME_US
from tests.support import make

FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("time_us", "time"),
    [
        (0, datetime(1970, 1, 1, tzinfo=UTC)),
        (1_767_225_600_000_001, datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
        (-1, datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        (MIN_TIME_US, FIRST),
        (MAX_TIME_US, LAST),
        (1_767_225_600_000 * 1_000_000, LAST),  # milliseconds that were taken for seconds
        (2**63 - 1, LAST),
        (MIN_TIME_US - 1, FIRST),
        (-(2**63), FIRST),
    ],
)
def test_a_commit_time_is_exact_and_outside_of_calendars_at_their_end(
    time_us: int, time: datetime
) -> None:
    assert make.change(committed_us=time_us).committed_at == time


def test_a_dead_letter_of_such_a_change_can_be_listed() -> None:
    late = replace(make.letter(1), change=make.change(committed_us=2**63 - 1))
    assert late.head.committed_at == LAST

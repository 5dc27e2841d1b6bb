"""What a host knows of the ranges whose observers fail."""

from changefeed.feeds.feed import RangeId
from changefeed.host.workers.range_health import RangeHealths

R0 = RangeId("r0")


def test_failures_count_from_the_first_until_a_batch_is_done() -> None:
    now = 100.0
    health = RangeHealths(lambda: now)
    health.failed(R0, "first")
    now = 200.0
    health.failed(R0, "second")
    seen = health.ranges[R0]
    assert (seen.failing_since, seen.last_error, seen.last_progress) == (100, "second", None)
    health.progressed(R0)
    seen = health.ranges[R0]
    assert (seen.failing_since, seen.last_error, seen.last_progress) == (None, None, 200)

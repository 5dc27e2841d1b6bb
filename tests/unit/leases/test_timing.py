"""What follows from the expiration fits together, whatever it is."""

from dataclasses import replace

import pytest

from changefeed.leases.timing import Timing


def test_with_thirty_seconds_a_host_renews_each_ten_and_lists_each_five() -> None:
    timing = Timing.of(30)
    assert (timing.renew_interval, timing.balance_interval, timing.call_timeout) == (10, 5, 10)
    assert (timing.fence_margin, timing.rebalance_delay, timing.cooldown) == (1, 5, 60)
    assert (timing.handoff_poll, timing.clock_skew) == (0.5, 300)
    assert (timing.ranges_interval, timing.lag_interval) == (30, 10)


@pytest.mark.parametrize("expiration", [0.5, 3, 10, 30, 600, 1e6])
def test_one_renewal_without_an_answer_loses_no_lease(expiration: float) -> None:
    timing = Timing.of(expiration)
    # The next one is sent within half an interval after the first was given up.
    second = timing.renew_interval + timing.call_timeout + timing.renew_interval / 2
    assert second < expiration - timing.fence_margin
    assert timing.handoff_poll <= timing.balance_interval
    assert timing.ranges_interval <= 30


def test_a_timing_that_one_lost_renewal_would_break_is_none() -> None:
    with pytest.raises(AssertionError, match="loses a lease"):
        replace(Timing.of(30), renew_interval=15)

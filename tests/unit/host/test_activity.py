"""What a host remembers of what it did, for those who look at it."""

from changefeed.feeds.feed import RangeId
from changefeed.host.activity import Activity

R, S = RangeId("r"), RangeId("s")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_rates_are_made_of_ten_seconds() -> None:
    clock = Clock()
    activity = Activity(clock)
    activity.done[R] += 30
    activity.done[S] += 10
    clock.now += 9
    activity.sample()
    assert activity.rates == {}
    clock.now += 1
    activity.sample()
    assert activity.rates == {R: 3.0, S: 1.0}
    clock.now += 10
    activity.sample()
    assert activity.rates == {}, "nothing was done since"

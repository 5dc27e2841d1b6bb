"""What a host remembers of what it did, for those who look at it."""

from changefeed.feeds.feed import Position, RangeId
from changefeed.host.activity import Activity

R, S = RangeId("r"), RangeId("s")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_rates_are_made_of_ten_seconds() -> None:
    clock = Clock()
    activity = Activity(clock)
    activity.done(R, 30)
    activity.done(S, 10)
    clock.now += 9
    activity.sample()
    assert activity.rates == {}
    clock.now += 1
    activity.sample()
    assert activity.rates == {R: 3.0, S: 1.0}
    clock.now += 10
    activity.sample()
    assert activity.rates == {}, "nothing was done since"


def test_a_range_is_known_from_its_acquisition_until_it_is_given_up() -> None:
    clock = Clock()
    activity = Activity(clock)
    activity.acquired(R, Position("5"))
    assert (activity.ranges[R].since, activity.ranges[R].position) == (1000.0, "5")
    assert activity.ranges[R].checkpoint_at is None
    clock.now += 3
    activity.checkpointed(R, Position("9"))
    known = activity.ranges[R]
    assert (known.since, known.position, known.checkpoint_at) == (1000.0, "9", 1003.0)
    activity.given_up(R)
    activity.checkpointed(R, Position("10"))  # its answer came late
    assert activity.ranges == {}

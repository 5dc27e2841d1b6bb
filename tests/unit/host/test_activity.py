"""What a host remembers of what it did, for those who look at it."""

from collections.abc import Mapping

from changefeed.feeds.feed import Position, RangeId
from changefeed.host.metrics import Activity
from tests.support import make

R, S = RangeId("r"), RangeId("s")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_rates_are_made_of_ten_seconds() -> None:
    clock = Clock()
    activity = Activity(clock)
    for found, changes in ((R, 30), (S, 10)):
        activity.acquired(make.lease(found), Position("0"))
        activity.of(found).done += changes
    clock.now += 9
    activity.sample()
    assert rates(activity) == {R: 0.0, S: 0.0}
    clock.now += 1
    activity.sample()
    assert rates(activity) == {R: 3.0, S: 1.0}
    clock.now += 10
    activity.sample()
    assert rates(activity) == {R: 0.0, S: 0.0}, "nothing was done since"


def test_what_fails_after_its_range_was_given_up_leaves_nothing_behind() -> None:
    activity = Activity(Clock())
    activity.acquired(make.lease(R), Position("0"))
    activity.failed(R, "no such table")
    activity.given_up(R)
    activity.failed(R, "no such table")
    assert activity.ranges == {}
    assert not activity.of(R).health.has_problem
    assert [*activity.read_failing(), *activity.read_waiting()] == []


def rates(activity: Activity) -> Mapping[RangeId, float]:
    return {name: x.rate for name, x in activity.ranges.items()}

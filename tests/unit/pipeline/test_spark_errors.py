"""Python processes that Spark loses: called again a few times, and then given up."""

from collections.abc import Callable

import pytest

from changefeed.pipeline.shutdown import Stopping
from changefeed.pipeline.spark_errors import TRIES, try_again, worker_lost_reason
from changefeed.runtime.errors import Failure

TOO_LATE = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect "
    "back. SQLSTATE: XXKST\n=== Streaming Query ===\nIdentifier"
)


class Clock(Stopping):
    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)


def failing(times: int, text: str = TOO_LATE) -> Callable[[], str]:
    left = [Exception(text)] * times

    def call() -> str:
        if left:
            raise left.pop()
        return "done"

    return call


def test_a_process_that_spark_lost_is_recognized_and_other_failures_are_not() -> None:
    assert "Python worker failed to connect back." in str(worker_lost_reason(TOO_LATE))
    assert worker_lost_reason("Python worker exited unexpectedly (crashed): EOF") is not None
    assert worker_lost_reason("Java heap space") is None


def test_what_spark_lost_is_tried_again_later_and_later_until_it_is_given_up() -> None:
    clock, failures = Clock(), list[int]()
    assert try_again(failing(3), clock, lambda: failures.append(1)) == "done"
    assert (clock.waited, len(failures)) == ([1.0, 2.0, 4.0], 3)
    with pytest.raises(Failure, match="Is the machine overloaded"):
        try_again(failing(TRIES), clock)
    assert clock.waited[3:] == [1.0, 2.0, 4.0, 8.0]


def test_other_failures_are_not_tried_again_nor_is_anything_after_a_stop() -> None:
    clock = Clock()
    with pytest.raises(Exception, match="Java heap"):
        try_again(failing(1, "Java heap space"), clock)
    clock.ask()
    with pytest.raises(Failure):
        try_again(failing(1), clock)
    assert clock.waited == []

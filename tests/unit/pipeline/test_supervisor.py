"""Queries that are kept running, and brought to rest: without Spark, in steps of a clock."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from changefeed.feeds.errors import FeedUnavailable
from changefeed.observers.errors import ObserverFailed
from changefeed.pipeline.progress import TableProgress
from changefeed.pipeline.shutdown import Stopping
from changefeed.pipeline.source.drain import DrainGate, held
from changefeed.pipeline.spark_errors import TRIES
from changefeed.pipeline.supervisor import Filler, Starter, advice, keep_running
from changefeed.runtime.errors import Failure, UserError

AWAY = (
    "Failed ... Traceback\nchangefeed.feeds.errors.FeedUnavailable: log.db: locked. Ask again\n"
)
REFUSED = (
    "Failed ...\nchangefeed.feeds.errors.FeedRefused: there is no event log at x\n SQLSTATE"
)
LOST = "[STREAM_FAILED] Query [id = 1]: Python worker failed to connect back. SQLSTATE: X\n at"


class Steps(Stopping):
    """A clock that moves when somebody waits, and does then what is due."""

    def __init__(self) -> None:
        super().__init__()
        self.time = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def at(self, time: float, do: Callable[[], None]) -> None:
        self.due.append((time, do))

    def wait(self, seconds: float) -> None:
        self.time += seconds
        for one in [x for x in self.due if x[0] <= self.time]:
            self.due.remove(one)
            one[1]()

    def now(self) -> float:
        return self.time


class Query:
    """What the keeper sees of a query: it is in a batch until somebody changes that."""

    def __init__(self, failure: str | None = None) -> None:
        self.isActive = failure is None
        self.lastProgress = None
        self.busy = True
        self._failure = failure

    @property
    def status(self) -> Mapping[str, Any]:
        return {"isTriggerActive": self.busy}

    def exception(self) -> Exception | None:
        return None if self._failure is None else Exception(self._failure)

    def end(self, failure: str | None = None) -> None:
        self.isActive, self._failure = False, failure

    def stop(self) -> None:
        self.isActive = False

    def awaitTermination(self, _: int) -> bool:  # noqa: N802 - Spark's name
        return True


class Story:
    """One table, whose queries are those given, and what became of it."""

    def __init__(self, tmp_path: Path, *queries: Query) -> None:
        self.steps, self.hold = Steps(), DrainGate(tmp_path)
        self.progress = TableProgress()
        self.left = list(queries)
        self.fills: list[Query | None] = []
        self.filled: list[float] = []
        self.starts: list[float] = []
        self.stops: list[float] = []

    def starter(self) -> Starter:
        def start() -> Query:
            self.starts.append(self.steps.time)
            return self.left.pop(0)

        return cast("Starter", start)

    def filler(self) -> Filler:
        def fill() -> Query | None:
            self.filled.append(self.steps.time)
            return self.fills.pop(0) if self.fills else None

        return cast("Filler", fill)

    def run(self, *, stop_timeout: float = 25.0, tries: int | None = None) -> None:
        keep_running(
            {"orders": self.starter()},
            self.steps,
            self.hold,
            progress=self.progress,
            stop_timeout=stop_timeout,
            tries=tries,
            fillers={"orders": self.filler()},
        )
        self.stops.append(self.steps.time)

    @property
    def waits_for(self) -> list[str | None]:
        return [x.waits_for for x in self.progress.status().tables]


def test_a_query_whose_feed_or_python_is_away_is_started_later_and_later_until_it_is_back(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path, Query(LOST), Query(AWAY), Query(AWAY), last := Query())
    seen: list[list[str | None]] = []
    story.steps.at(2.0, lambda: seen.append(story.waits_for))
    story.steps.at(9.0, last.end)
    story.run()
    assert story.starts == [0.0, 1.25, 3.5, 7.75]  # 1, 2 and 4 seconds after a look
    assert seen == [["log.db: locked. Ask again"]]
    assert story.waits_for == [None]


@pytest.mark.parametrize(("failure", "tries"), [(AWAY, 3), (LOST, 3), (LOST, 9), (LOST, None)])
def test_a_feed_or_a_python_that_stays_away_is_given_up(
    failure: str, tries: int | None, tmp_path: Path
) -> None:
    story = Story(tmp_path, *(Query(failure) for _ in range(min(tries or TRIES, TRIES))))
    with pytest.raises(Failure, match=r"locked|lost") as told:
        story.run(tries=tries)
    assert story.starts == [0.0, 1.25, 3.5, 7.75, 16.0][:tries]
    assert not isinstance(told.value, UserError)


def test_a_table_that_is_far_behind_is_filled_before_its_query_begins(tmp_path: Path) -> None:
    story = Story(tmp_path, last := Query())
    story.fills = [fill := Query()]
    story.steps.at(5.0, fill.end)
    story.steps.at(9.0, last.end)
    story.run()
    assert story.filled == [0.0]
    assert story.starts == [5.25]
    assert story.stops == [9.25]


def test_a_fill_that_fails_is_tried_again_and_so_is_one_after_its_query_has_failed(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path, stream := Query(), last := Query())
    story.fills = [Query(AWAY), second := Query(), None]
    story.steps.at(3.0, second.end)
    story.steps.at(6.0, lambda: stream.end(AWAY))
    story.steps.at(20.0, last.end)
    story.run()
    assert story.filled == [0.0, 1.25, 8.0]  # 1 second after the first look, 2 after the next
    assert story.starts == [3.25, 8.0]


def test_any_other_failure_ends_the_pipeline_and_says_whose_turn_it_is(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"'orders'.*no event log at x"):
        Story(tmp_path, Query(REFUSED)).run()
    with pytest.raises(Failure, match="Java heap") as told:
        Story(tmp_path, Query("Java heap space\n\tat x")).run()
    assert not isinstance(told.value, UserError)


@pytest.mark.parametrize(("busy", "stops"), [(True, 8.0), (False, 1.0)])
def test_asked_to_stop_the_batch_that_runs_ends_and_none_begins(
    tmp_path: Path, *, busy: bool, stops: float
) -> None:
    story = Story(tmp_path, query := Query())
    query.busy = busy
    story.steps.at(1.0, story.steps.ask)
    story.steps.at(8.0, lambda: assert_held(story))
    story.run()
    assert story.stops == [pytest.approx(stops, abs=0.1)]
    assert not query.isActive


def assert_held(story: Story) -> None:
    assert held(story.hold.file("orders")), "a batch would begin"


def test_a_batch_is_broken_off_when_the_time_is_over_or_when_asked_again(
    tmp_path: Path,
) -> None:
    story = Story(tmp_path, Query())
    story.steps.at(1.0, story.steps.ask)
    story.run(stop_timeout=5.0)
    assert story.stops == [pytest.approx(6.0, abs=0.1)]
    hasty = Story(tmp_path, Query())
    hasty.steps.at(1.0, hasty.steps.ask)
    hasty.steps.at(3.0, hasty.steps.ask)
    hasty.run()
    assert hasty.stops == [pytest.approx(3.0, abs=0.1)]


def test_a_batch_that_fails_while_a_stop_waits_for_it_is_no_orderly_end(tmp_path: Path) -> None:
    story = Story(tmp_path, query := Query())
    story.steps.at(1.0, story.steps.ask)
    story.steps.at(4.0, lambda: query.end("disk full"))
    with pytest.raises(Failure, match="disk full"):
        story.run()


def test_a_source_that_is_held_says_that_it_was_asked(tmp_path: Path) -> None:
    hold = DrainGate(tmp_path)
    assert not held(None)
    assert not held(hold.file("orders"))
    hold.begin("orders")
    assert not hold.noticed("orders")
    assert held(hold.file("orders"))
    assert hold.noticed("orders")
    assert not held(hold.file("others"))


FAILED = "changefeed.observers.errors.ObserverFailed: it"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (AWAY, FeedUnavailable),
        (f"a\n{FAILED}\nb", ObserverFailed),
        ("x\nchangefeed.feeds.errors.RangeRefused: 400: too old", UserError),
        (f"{AWAY}The above exception was the direct cause\n{FAILED}", ObserverFailed),
        ("one\ntwo", None),
        ("the value 'x FeedUnavailable: gone' is no number", None),
        ("x\nno.such.module.FeedRefused: gone", None),
        ("x\nchangefeed.no_such.FeedRefused: gone", None),
    ],
)
def test_an_error_is_known_by_its_full_name_within_what_spark_says(
    said: str, kind: type[Exception] | None
) -> None:
    found, _, _ = advice(said)
    assert found is Failure if kind is None else issubclass(found, kind)

"""Breaks of how ranges at rest are asked for news."""

from .mutant import Mutant

_IDLE = "tests/unit/host/workers/test_idle_ranges.py"
_HELD = "tests/unit/host/workers/test_held_questions.py"
_ENDS = "tests/unit/feeds/brokers/test_ends.py"
_BROKERS = "tests/integration/brokers/test_many_ranges.py"
_CONTRACT = "tests/contract/test_feeds.py::test_a_feed_that_answers_for_many_ranges"
_SAYS = f"{_CONTRACT}_says_which_have_news_and_how_much[event-log]"
_LEAVES = f"{_CONTRACT}_leaves_what_is_odd_to_their_readers[event-log]"
_AT_REST = "test_a_log_that_nothing_is_appended_to_is_not_read_to_find_that_out"
_EVENTLOG = f"tests/integration/test_eventlog.py::{_AT_REST}"

IDLE = (
    Mutant(
        name="a feed that waits for news is given no time for it",
        file="feeds/timeouts.py",
        before="LONGEST_WAIT_FOR_NEWS + self._timeout",
        after="self._timeout",
        rule=0,
        tests=(
            "tests/unit/feeds/test_timeouts.py::test_a_feed_that_waits_for_news_is_given_the_time_for_it",
        ),
    ),
    Mutant(
        name="a range whose changes are not done waits for news",
        file="host/workers/delivery.py",
        before="            and not self._acknowledgements.unacknowledged\n            and",
        after="            and",
        rule=12,
        tests=(_IDLE,),
    ),
    Mutant(
        name="a range that is asked for alone is always asked at full speed",
        file="host/workers/idle_ranges.py",
        before="self._last * _GROWTH",
        after="self._last",
        rule=0,
        tests=(_IDLE,),
    ),
    Mutant(
        name="a feed that waits for changes itself is asked less often",
        file="host/workers/prefetch.py",
        before="        if page.changes or took >= self._settings.poll_interval:\n",
        after="        if page.changes:\n",
        rule=0,
        tests=(_IDLE,),
    ),
    Mutant(
        name="a range that was idle is asked seldom for ever",
        file="host/workers/idle_ranges.py",
        before="        self._last = None\n\n    def next",
        after="        pass\n\n    def next",
        rule=0,
        tests=(_IDLE,),
    ),
    Mutant(
        name="a feed that refuses news is never read again",
        file="host/workers/idle_ranges.py",
        before="            return positions  # each",
        after="            return ()  # each",
        rule=8,
        tests=(_IDLE,),
    ),
    Mutant(
        name="ranges that come to wait are not asked for while a question is held",
        file="host/workers/idle_ranges.py",
        before="        self._more.set()\n",
        after="",
        rule=0,
        tests=(_HELD,),
    ),
    Mutant(
        name="a slow feed never comes to answer while ranges come to wait",
        file="host/workers/idle_ranges.py",
        before="patience *= 2",
        after="patience *= 1",
        rule=0,
        tests=(_HELD,),
    ),
    Mutant(
        name="a broker that always has news keeps those of a slow one unheard",
        file="feeds/brokers/ends.py",
        before="if not waits or len(asks) > 1:",
        after="if not waits:",
        rule=9,
        tests=(_ENDS,),
    ),
    Mutant(
        name="of the parts of a partition the one that is behind is not asked for",
        file="feeds/brokers/ends.py",
        before="min(x.after, ask.get(x.name, x.after))",
        after="max(x.after, ask.get(x.name, x.after))",
        rule=9,
        tests=(_ENDS,),
    ),
    Mutant(
        name="a question that one broker has answered stays with the others",
        file="feeds/brokers/ends.py",
        before="            for x in asking:\n                x.cancel()\n",
        after="",
        rule=0,
        tests=(_ENDS,),
    ),
    Mutant(
        name="a broker holds the question of a client that is gone",
        file="brokers/ends.py",
        before="    while not is_gone() and clock() < until:",
        after="    while clock() < until:",
        rule=0,
        tests=(_BROKERS,),
    ),
    Mutant(
        name="the end of a partition is no news at its broker",
        file="brokers/ends.py",
        before="        if ended or last != sequence:",
        after="        if last != sequence:",
        rule=9,
        tests=(_BROKERS,),
    ),
    Mutant(
        name="the end of a range is no news",
        file="feeds/eventlog/ends.py",
        before="            or end.closed\n",
        after="",
        rule=9,
        tests=(_LEAVES,),
    ),
    Mutant(
        name="what was appended since is not seen",
        file="feeds/eventlog/ends.py",
        before="known.version == version",
        after="known.version <= version",
        rule=12,
        tests=(_SAYS, _EVENTLOG),
    ),
    Mutant(
        name="each look for news reads where all ranges end",
        file="feeds/eventlog/ends.py",
        before="known.version == version",
        after="known.version < 0",
        rule=0,
        tests=(_EVENTLOG,),
    ),
)

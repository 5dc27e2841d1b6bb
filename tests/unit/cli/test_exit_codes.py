"""Which error ends a command with which code."""

import errno

import pytest

from changefeed.cli.exit_codes import exit_message
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.feed import RangeId
from changefeed.observers.errors import ObserverStuck, out_of_memory
from changefeed.runtime.errors import (
    Failure,
    NameTaken,
    StoreRefused,
    StoreUnavailable,
    UserError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UserError("x"), 2),
        (Failure("x"), 1),
        (FeedRefused("x"), 2),
        (StoreRefused("x"), 2),
        (ObserverStuck(RangeId("r0"), "process", 15.0), 1),
        (out_of_memory(RangeId("r0"), "it ran out of memory"), 1),
        (NameTaken("x"), 2),
        (FeedUnavailable("x"), 1),
        (StoreUnavailable("x"), 1),
        (OSError(28, "No space left on device"), 1),
    ],
)
def test_user_errors_exit_with_2_and_transient_errors_with_1(
    error: Exception, code: int
) -> None:
    assert exit_message(error) == (str(error), code)


def test_a_place_that_this_user_may_not_use_is_for_a_person_to_change() -> None:
    denied = PermissionError(errno.EACCES, "Permission denied", "data/log")
    advice = "give this user the right to it, or name another place"
    assert exit_message(denied) == (f"{denied}; {advice}", 2)


def test_several_errors_are_each_printed_once_and_the_worst_sets_the_exit_code() -> None:
    several = ExceptionGroup(
        "", [FeedUnavailable("a"), ExceptionGroup("", [FeedRefused("b"), FeedUnavailable("a")])]
    )
    assert exit_message(several) == ("a; b", 2)


def test_a_bug_is_not_explained_away() -> None:
    assert exit_message(KeyError("x")) is None
    assert exit_message(ExceptionGroup("", [KeyError("x"), FeedRefused("b")])) is None

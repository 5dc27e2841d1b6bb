"""What feeds say to hosts, as those who run a query read it."""

import pytest

from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeRefused
from changefeed.feeds.feed import RangeId
from changefeed.pipeline.source.advice import query_advice
from changefeed.runtime.errors import UserError


def test_a_refusal_keeps_what_led_to_it_and_other_errors_pass_as_they_are() -> None:
    refused = RangeRefused(RangeId("a"), "range 'a' is gone. Reset the lease of this range")
    with pytest.raises(UserError, match="Start the query") as raised, query_advice():
        raise refused
    assert raised.value.__cause__ is refused
    for error in (FeedUnavailable("away", 5.0), FeedRefused("no log at x"), KeyError("x")):
        with pytest.raises(type(error)) as passed, query_advice():
            raise error
        assert passed.value is error

"""What feeds say to hosts, as those who run a query read it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from changefeed.feeds import errors
from changefeed.feeds.errors import FeedRefused, FeedUnavailable, RangeRefused
from changefeed.feeds.feed import RangeId
from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.source.advice import in_words_of_queries, query_advice

FEEDS = Path(errors.__file__).resolve().parent


def texts() -> Iterator[str]:
    """Return every formatted text in the code of feeds, with nothing for what is filled in."""
    for file in FEEDS.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(x.value) for x in node.values if isinstance(x, ast.Constant))


def test_no_advice_of_any_feed_sends_one_who_runs_a_query_to_leases() -> None:
    advice = [x for x in texts() if "eset the lease" in x]
    assert len(advice) >= 6, "the texts are not where this test looks"
    for text in advice:
        said = in_words_of_queries(text)
        assert "lease" not in said
        assert "tart the query again with a new checkpoint directory" in said


def test_a_refusal_keeps_what_led_to_it_and_other_errors_pass_as_they_are() -> None:
    refused = RangeRefused(RangeId("a"), "range 'a' is gone. Reset the lease of this range")
    with pytest.raises(PipelineRefused, match="Start the query") as raised, query_advice():
        raise refused
    assert raised.value.__cause__ is refused
    for error in (FeedUnavailable("away", 5.0), FeedRefused("no log at x"), KeyError("x")):
        with pytest.raises(type(error)) as passed, query_advice():
            raise error
        assert passed.value is error

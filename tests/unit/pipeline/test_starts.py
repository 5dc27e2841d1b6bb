"""Where to begin, as people write it, in each place that they write it in."""

from collections.abc import Callable
from datetime import datetime

import pytest
from pydantic import ValidationError

from changefeed.feeds.starts import start_in
from changefeed.fleet.reset import check_position
from changefeed.host.settings import FeedSettings
from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.source.options import Options
from changefeed.runtime.errors import UserError

LOG = "eventlog:/log"


def test_a_place_to_start_is_a_word_a_time_or_else_a_position() -> None:
    assert start_in("now") == "now"
    assert str(start_in("2026-01-31T12:00Z")) == "2026-01-31 12:00:00+00:00"
    assert start_in('"7052"') is None
    assert start_in("27296216/3") is None
    with pytest.raises(ValueError, match="has no zone"):
        start_in("2026-01-31T12:00")


@pytest.mark.parametrize(
    ("takes", "error"),
    [
        (lambda x: FeedSettings(start=x), ValidationError),
        (lambda x: FeedSettings(start=datetime.fromisoformat(x)), ValidationError),
        (lambda x: PipelineSettings(feed=LOG, directory="d", start=x), ValidationError),
        (lambda x: check_position(["r0"], x), UserError),
        (lambda x: Options.of({"feed": LOG, "startingAt": x}), UserError),
        (lambda x: Options.of({"feed": LOG, "endingAt": x}), UserError),
    ],
)
def test_a_time_in_the_future_is_refused_wherever_a_time_is_taken(
    takes: Callable[[str], object], error: type[Exception]
) -> None:
    takes("2025-01-01T00:00:00+00:00")
    with pytest.raises(error, match="in the future"):
        takes("2525-01-01T00:00:00+00:00")

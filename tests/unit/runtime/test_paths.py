"""Paths as people type them."""

from pathlib import Path

import pytest

from changefeed.feeds.errors import FeedRefused
from changefeed.runtime.errors import UserError
from changefeed.runtime.paths import expanded


def test_a_path_begins_in_the_home_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert expanded("~/log") == Path("/home/me/log")
    assert expanded("data/~/log") == Path("data/~/log")


def test_a_home_that_nobody_has_is_refused_with_advice() -> None:
    with pytest.raises(UserError, match="~nobody-has-it/log"):
        expanded("~nobody-has-it/log")
    with pytest.raises(FeedRefused):
        expanded(Path("~nobody-has-it"), FeedRefused)

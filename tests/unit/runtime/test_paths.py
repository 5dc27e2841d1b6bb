"""Paths as people type them."""

from pathlib import Path

import pytest

from changefeed.feeds.errors import FeedRefused
from changefeed.runtime.errors import UserError
from changefeed.runtime.paths import absolute, absolute_address, expanded


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("sqlite:data/leases.db", "sqlite:{}/data/leases.db"),
        ("eventlog:log", "eventlog:{}/log"),
        ("jsonl:/letters.jsonl", "jsonl:/letters.jsonl"),
        ("sqlite:", "sqlite:"),
        ("redis://h/1", "redis://h/1"),
        ("other:place", "other:place"),
    ],
)
def test_an_address_of_a_file_is_written_out(
    given: str, meant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert absolute_address(given) == meant.format(tmp_path)


def test_a_working_directory_that_was_deleted_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (gone := tmp_path / "gone").mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(UserError, match="working directory was deleted"):
        absolute("data")
    monkeypatch.chdir("/")


def test_a_home_that_nobody_has_is_refused_with_advice() -> None:
    with pytest.raises(UserError, match="~nobody-has-it/log"):
        expanded("~nobody-has-it/log")
    with pytest.raises(FeedRefused):
        expanded(Path("~nobody-has-it"), FeedRefused)

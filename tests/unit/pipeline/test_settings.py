"""The settings of a pipeline, from files, the environment and flags."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from changefeed.cli.commands.pipeline import PipelineFlags
from changefeed.pipeline.settings import PipelineSettings, load_settings
from changefeed.runtime.errors import UserError
from changefeed.runtime.settings import Section
from changefeed.runtime.settings_schema import entries

MINE = PipelineFlags(feed="eventlog:log", directory="tables")


def test_a_setting_whose_source_was_not_installed_has_no_text() -> None:
    made = type("Made", (Section,), {"__annotations__": {"n": int}, "n": 1})
    assert entries(made)["n",].text == ""


def test_the_environment_has_a_prefix_of_its_own_and_flags_go_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('feed = "eventlog:a"\nmax_changes = 5\n')
    monkeypatch.setenv("CHANGEFEED_PIPELINE__DIRECTORY", "/tables")
    monkeypatch.setenv("CHANGEFEED_PIPELINE__MAX_CHANGES", "6")
    monkeypatch.setenv("CHANGEFEED_PIPELINE__LATEST__INTERVAL", "2")
    monkeypatch.setenv("CHANGEFEED_PIPELINE__SPARK", '{"spark.driver.memory": "2g"}')
    monkeypatch.setenv("CHANGEFEED_FEED__ADDRESS", "eventlog:of-the-host-beside")
    settings = PipelineFlags(config=file, sets=["latest.interval=3"]).settings()
    assert (settings.feed, settings.directory) == ("eventlog:a", "/tables")
    assert (settings.max_changes, settings.latest.interval) == (6, 3)
    assert settings.spark == {"spark.driver.memory": "2g"}
    made = PipelineSettings(feed="f", directory="d")
    assert made.max_changes == 1_000_000, "settings that a program makes look nowhere"


def test_numbers_are_text_where_spark_wants_text() -> None:
    given = replace(MINE, sets=['spark={"spark.executor.instances": 4}'])
    assert given.settings().spark == {"spark.executor.instances": "4"}
    with pytest.raises(UserError, match=r"spark\.spark\.x "):
        replace(MINE, sets=['spark={"spark.x": [1]}']).settings()


def test_places_are_where_the_user_stands_whatever_spark_does() -> None:
    settings = MINE.settings()
    assert settings.directory == str(Path("tables").absolute())
    assert settings.observer.dead_letters == f"sqlite:{Path('dead-letters.db').absolute()}"
    assert settings.queries == ["changes", "latest"]
    observed = PipelineFlags(
        feed="eventlog:log", directory="s3://x/y", observer="log"
    ).settings()
    assert observed.checkpoint("observer") == "s3://x/y/_checkpoints/observer"
    assert observed.queries == ["changes", "latest", "observer"]


@pytest.mark.parametrize(
    ("sets", "named"),
    [
        ("nonsense", "nonsense"),
        ("a b c=1", "'a b c'"),
        ("#latest.interval=6", "'#latest.interval'"),
        ("observer.retri=1", "observer.retri "),
        ("observer.on_failure=stop-range", "observer.on_failure "),
    ],
)
def test_a_wrong_flag_is_named(sets: str, named: str) -> None:
    with pytest.raises(UserError, match=named):
        replace(MINE, sets=[sets]).settings()


def test_a_file_that_is_not_there_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="changefeed config pipeline"):
        load_settings(tmp_path / "none.toml", {})


def test_settings_of_tables_that_do_not_fit_together_are_named() -> None:
    with pytest.raises(UserError, match="directory is required"):
        load_settings(None, {"feed": "eventlog:log"})
    aggregate = {"name": "a", "select": "SELECT 1"}
    for wrong, named in (
        ({"name": "latest"}, "latest, observer, latest"),
        ({"name": "a.b"}, r"aggregates.0.name .*\(from the command line\)"),
    ):
        with pytest.raises(UserError, match=named):
            replace(MINE, sets=[f"aggregates={json.dumps([aggregate | wrong])}"]).settings()

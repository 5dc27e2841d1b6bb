"""The settings of a pipeline, from files and flags, and the file that lists them."""

import os
import re
import threading
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from changefeed.cli.config_file import config_text
from changefeed.cli.pipeline import app
from changefeed.cli.pipeline.flags import ObserveFlags
from changefeed.cli.pipeline.init_config import HEAD
from changefeed.pipeline.settings import AggregateSettings, PipelineSettings, load_settings
from changefeed.runtime.errors import UserError
from changefeed.runtime.settings_schema import entries

MINE = ObserveFlags(feed="eventlog:log", directory="tables")
TEXT = config_text(HEAD, PipelineSettings)
WITHOUT_AGGREGATES = re.sub(r"^#\[\[aggregates\]\]\n(#.*\n)+", "", TEXT, flags=re.MULTILINE)
RETRY = ("observer", "retry")
_HAS_NO_DEFAULT = {"body_schema", "name", "timeout", "port"}


def test_the_file_that_is_written_loads_and_gives_each_setting_its_default(
    tmp_path: Path,
) -> None:
    file = tmp_path / "pipeline.toml"
    assert CliRunner().invoke(app, ["init-config", str(file)]).exit_code == 0
    assert CliRunner().invoke(app, ["init-config", str(file)]).exit_code == 2
    assert file.read_text() == TEXT
    plain = load_settings(file, {})
    assert plain == ObserveFlags(feed="eventlog:data/log", directory="data/tables").settings()
    spelled = re.sub(r"^#([a-z_]+ = .+)$", r"\1", WITHOUT_AGGREGATES, flags=re.MULTILINE)
    assert set(re.findall(r"^#([a-z_]+) =$", spelled, flags=re.MULTILINE)) == _HAS_NO_DEFAULT
    file.write_text(spelled)
    assert load_settings(file, {}) == plain


def test_the_file_that_is_written_names_every_setting_in_its_section() -> None:
    found, section = set(), ()
    for line in TEXT.splitlines():
        if heading := re.fullmatch(r"#?\[+([a-z.]+)\]+", line):
            section = tuple(heading[1].split("."))
        elif setting := re.match(r"#?([a-z_]+) =", line):
            found.add((*section, setting[1]))
    aggregates = {("aggregates", x) for x in AggregateSettings.model_fields}
    assert found == {*entries(PipelineSettings), *aggregates} - {("aggregates",)}


def test_every_setting_that_is_not_clear_by_its_name_is_explained() -> None:
    clear = {"enabled", "bind", "level", "window"}
    found = entries(PipelineSettings)
    bare = {x.name for path, x in found.items() if not x.text and path[:2] != RETRY}
    bare |= {x.name for x in found[("aggregates",)].items if not x.text}
    assert bare == clear


def test_an_aggregate_of_the_written_file_is_one() -> None:
    lines = re.search(r"^#\[\[aggregates\]\]\n((?:#.*\n)+)", TEXT, flags=re.MULTILINE)
    assert lines is not None
    text = "".join(re.findall(r"^#([a-z_]+ = .+\n)", lines[1], flags=re.MULTILINE))
    assert AggregateSettings.model_validate(tomllib.loads(text)) == AggregateSettings(
        name="hourly",
        window="1 hour",
        watermark="2 hours",
        by={"kind": "value.kind"},
        sums={"total": "value.total"},
        where="operation <> 'delete'",
    )


def test_flags_go_before_the_file_and_leave_the_rest_of_a_section_alone(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text(
        'feed = "eventlog:a"\ndirectory = "d"\n[observer]\nname = "log"\nconcurrency = 4\n'
    )
    settings = ObserveFlags(
        config=file,
        feed="eventlog:b",
        options=["path=x.jsonl", "size=3"],
        sets=["observer.timeout=2.5", "observer.retry.attempts=3", "log.level=debug"],
        metrics_port=9000,
    ).settings()
    assert settings.feed == "eventlog:b"
    assert (settings.observer.name, settings.observer.concurrency) == ("log", 4)
    assert settings.observer.options == {"path": "x.jsonl", "size": 3}
    assert (settings.observer.timeout, settings.observer.retry.attempts) == (2.5, 3)
    assert (settings.log.level, settings.web.port) == ("debug", 9000)


def test_the_environment_goes_before_the_file_and_flags_before_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('feed = "eventlog:a"\nmax_changes = 5\n[latest]\ninterval = 1\n')
    monkeypatch.setenv("CHANGEFEED_PIPELINE__DIRECTORY", "/tables")
    monkeypatch.setenv("CHANGEFEED_PIPELINE__MAX_CHANGES", "6")
    monkeypatch.setenv("CHANGEFEED_PIPELINE__LATEST__INTERVAL", "2")
    monkeypatch.setenv("CHANGEFEED_PIPELINE__SPARK", '{"spark.driver.memory": "2g"}')
    monkeypatch.setenv("CHANGEFEED_FEED__ADDRESS", "eventlog:of-the-host-beside")
    settings = ObserveFlags(config=file, sets=["latest.interval=3"]).settings()
    assert (settings.feed, settings.directory) == ("eventlog:a", "/tables")
    assert (settings.max_changes, settings.latest.interval) == (6, 3)
    assert settings.spark == {"spark.driver.memory": "2g"}


@pytest.mark.parametrize(
    ("variable", "what"),
    [
        ("DIRECTRY", "but there is no setting 'directry' of"),
        ("LATST__INTERVAL", "but there is no section 'latst' of"),
        ("FEED__ADDRESS", "but feed is one value: set CHANGEFEED_PIPELINE__FEED"),
        ("SPARK__A", "and .* lower case: set CHANGEFEED_PIPELINE__SPARK to all of spark, as"),
    ],
)
def test_a_variable_that_would_be_ignored_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, what: str
) -> None:
    monkeypatch.setenv(f"CHANGEFEED_PIPELINE__{variable}", "x")
    with pytest.raises(UserError, match=f"CHANGEFEED_PIPELINE__{variable}, {what}"):
        MINE.settings()


def test_a_wrong_value_in_a_section_that_is_set_whole_is_said_to_be_from_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHANGEFEED_PIPELINE__LATEST", '{"interval": -1}')
    with pytest.raises(
        UserError, match=r"latest.interval \(from CHANGEFEED_PIPELINE__LATEST\)"
    ):
        MINE.settings()


def test_an_error_in_a_list_names_the_element_by_number_not_by_variable() -> None:
    aggregates = 'aggregates=[{"name": "a", "window": "1 h"}, {"name": "b", "windw": "1 h"}]'
    with pytest.raises(UserError) as told:
        ObserveFlags(feed="f", directory="d", sets=[aggregates]).settings()
    assert str(told.value).splitlines()[1:] == [
        "  aggregates.1.window (from the command line): there is none, and it has to be there",
        "  aggregates.1.windw (from the command line): there is no such setting",
    ]


def test_numbers_are_text_where_spark_wants_text(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.toml"
    file.write_text('[spark]\n"spark.executor.instances" = 4\n"spark.x" = [1]\n')
    with pytest.raises(
        UserError, match=r"spark\.spark\.x \(from .*\): should be a valid string"
    ):
        ObserveFlags(config=file, feed="f", directory="d").settings()
    file.write_text('[spark]\n"spark.executor.instances" = 4\n')
    settings = ObserveFlags(config=file, feed="f", directory="d").settings()
    assert settings.spark == {"spark.executor.instances": "4"}


def test_a_file_may_be_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writing = threading.Thread(target=pipe.write_text, args=('feed = "f"\nmax_changes = 7\n',))
    writing.start()
    assert ObserveFlags(config=pipe, directory="d").settings().max_changes == 7
    writing.join()


def test_settings_that_are_made_look_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEFEED_PIPELINE__MAX_CHANGES", "6")
    assert PipelineSettings(feed="f", directory="d").max_changes == 1_000_000


def test_an_option_of_the_observer_is_the_same_by_either_flag() -> None:
    by_set = ObserveFlags(feed="f", directory="d", sets=["observer.options.size=5"]).settings()
    by_option = ObserveFlags(feed="f", directory="d", options=["size=5"]).settings()
    assert by_set.observer.options == by_option.observer.options == {"size": 5}


def test_a_name_with_dots_is_quoted_in_a_flag() -> None:
    settings = ObserveFlags(feed="f", directory="d", sets=['spark."spark.driver.memory"=2g'])
    assert settings.settings().spark == {"spark.driver.memory": "2g"}


def test_places_are_where_the_user_stands_whatever_spark_does() -> None:
    settings = MINE.settings()
    assert settings.directory == str(Path("tables").absolute())
    assert settings.observer.dead_letters == f"sqlite:{Path('dead-letters.db').absolute()}"
    assert settings.queries == ["changes", "latest"]
    observed = ObserveFlags(
        feed="eventlog:log", directory="s3://x/y", observer="log"
    ).settings()
    assert observed.checkpoint("observer") == "s3://x/y/_checkpoints/observer"
    assert observed.queries == ["changes", "latest", "observer"]


@pytest.mark.parametrize(
    ("sets", "advice"),
    [
        ("nonsense", "write it as section.key=value"),
        ("a b c=1", "'a b c' is no name of a setting"),
        ("#latest.interval=6", "'#latest.interval' is no name of a setting; .* is quoted"),
        (
            "observer.retri=1",
            "observer.retri .*there is no such setting; did you mean",
        ),
        (
            "observer.on_failure=stop-range",
            "observer.on_failure .*'retry', 'dead-letter' or",
        ),
    ],
)
def test_a_wrong_flag_is_named(sets: str, advice: str) -> None:
    with pytest.raises(UserError, match=advice):
        ObserveFlags(feed="f", directory="d", sets=[sets]).settings()


def test_a_file_that_is_not_there_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="make one with: changefeed pipeline init-config"):
        load_settings(tmp_path / "none.toml", {})

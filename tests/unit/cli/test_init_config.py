"""The file that ``config`` writes."""

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from changefeed.cli.app import app
from changefeed.cli.config_file import settings_text
from changefeed.host.settings import Settings, load_settings
from changefeed.log.brokers.settings import BrokerSettings, load_broker_settings
from changefeed.pipeline.settings import AggregateSettings, PipelineSettings
from changefeed.pipeline.settings import load_settings as load_pipeline_settings
from changefeed.runtime.settings_schema import entries
from tests.support.disks import fill, small_disk_at

KINDS: Mapping[str, tuple[Any, Callable[..., Any], Mapping[str, Any]]] = {
    "host": (Settings, load_settings, {}),
    "pipeline": (
        PipelineSettings,
        load_pipeline_settings,
        {"feed": "eventlog:data/log", "directory": "data/tables"},
    ),
    "broker": (BrokerSettings, load_broker_settings, {"broker": {"cluster": "file:///c"}}),
}
"""Models, what loads them, and what has no default."""

OF_MANY = re.compile(r"^#\[+(?:aggregates|processors)[\].].*\n(?:#.*\n)+", re.MULTILINE)


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_loads_as_it_is_written_and_shows_the_default_of_each_setting(
    kind: str, tmp_path: Path
) -> None:
    _, load, needed = KINDS[kind]
    file = tmp_path / "c.toml"
    assert CliRunner().invoke(app, ["config", kind, str(file)]).exit_code == 0
    assert load(file, needed) == load(None, needed)
    text = OF_MANY.sub("", file.read_text())
    file.write_text(re.sub(r"^#([a-z_]+ = .+)$", r"\1", text, flags=re.MULTILINE))
    assert load(file, needed) == load(None, needed)


@pytest.mark.parametrize("kind", KINDS)
def test_the_file_names_every_setting_in_its_section(kind: str) -> None:
    found, section = set(), ()
    for line in settings_text(kind).splitlines():
        if heading := re.fullmatch(r"#?\[+([a-z.]+)\]+", line):
            section = tuple(heading[1].split("."))
        elif setting := re.match(r"#?([a-z_]+) =", line):
            found.add((*section, setting[1]))
    known = {*entries(KINDS[kind][0])}
    if kind == "pipeline":
        known |= {("aggregates", x) for x in AggregateSettings.model_fields}
    assert {x for x in found if x[0] != "processors"} == known - {("aggregates",)}


def test_a_file_that_has_no_room_is_not_begun(tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "1m") as disk:
        fill(disk)
        before = {*disk.iterdir()}
        found = CliRunner().invoke(app, ["config", "host", str(disk / "changefeed.toml")])
        assert (found.exit_code, "device; make room" in found.stderr) == (1, True)
        assert {*disk.iterdir()} == before


def test_a_dash_is_standard_output_here_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["config", "pipeline", "-"])
    assert tomllib.loads(found.stdout)["feed"]
    assert not list(tmp_path.iterdir())

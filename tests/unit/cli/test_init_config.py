"""The file that ``config`` writes."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from changefeed.cli.app import app
from changefeed.host.settings import Settings, load_settings


def test_the_file_loads_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "changefeed.toml"
    assert CliRunner().invoke(app, ["config", "host", str(file)]).exit_code == 0
    assert load_settings(file, {}).model_dump() == Settings().model_dump()


@pytest.mark.parametrize(("more", "code"), [([], 2), (["--force"], 0)])
def test_a_file_that_is_there_is_overwritten_by_force_only(
    tmp_path: Path, more: list[str], code: int
) -> None:
    file = tmp_path / "changefeed.toml"
    file.write_text("mine")
    assert CliRunner().invoke(app, ["config", "host", str(file), *more]).exit_code == code
    assert (file.read_text() == "mine") == bool(code)


def test_force_is_no_advice_for_what_is_no_file(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["config", "host", str(tmp_path)])
    assert found.exit_code == 2
    assert str(tmp_path) in found.stderr
    assert "--force" not in found.stderr

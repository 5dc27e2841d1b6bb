"""The file that ``config`` writes."""

import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from changefeed.cli.app import app
from changefeed.host.settings import Settings, load_settings
from tests.support.disks import fill, small_disk_at


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


def test_a_file_that_has_no_room_is_not_begun(tmp_path: Path) -> None:
    with small_disk_at(tmp_path / "disk", "1m") as disk:
        file = disk / "changefeed.toml"
        file.write_text("mine")
        fill(disk)
        found = CliRunner().invoke(app, ["config", "host", str(file), "--force"])
        assert (found.exit_code, "No space left on device" in found.stderr) == (2, True)
        assert file.read_text() == "mine"
        assert len(list(disk.iterdir())) == 2


def test_a_dash_is_standard_output_here_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["config", "pipeline", "-"])
    assert tomllib.loads(found.stdout)["feed"]
    assert not list(tmp_path.iterdir())


def test_force_is_no_advice_for_what_is_no_file(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["config", "host", str(tmp_path)])
    assert found.exit_code == 2
    assert str(tmp_path) in found.stderr
    assert "--force" not in found.stderr

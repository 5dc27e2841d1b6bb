"""The file that ``init-config`` writes."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from changefeed.cli.app import app
from changefeed.cli.config_file import config_text
from changefeed.cli.init_config import HEAD
from changefeed.host.settings import Settings, load_settings
from changefeed.runtime.settings_schema import sections

_SETTING = re.compile(r"^#(\w+ = .+)$", re.MULTILINE)
TEXT = config_text(HEAD, Settings)


def test_the_file_loads_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "changefeed.toml"
    assert CliRunner().invoke(app, ["init-config", str(file)]).exit_code == 0
    assert load_settings(file, {}).model_dump() == Settings().model_dump()


def test_every_default_in_it_is_what_it_says_it_is(tmp_path: Path) -> None:
    file = tmp_path / "changefeed.toml"
    text, count = _SETTING.subn(r"\1", TEXT)
    file.write_text(text)
    with_default = [x for s in sections(Settings) for x in s.entries if x.default is not None]
    assert count == len(with_default)
    assert load_settings(file, {}).model_dump() == Settings().model_dump()


def test_every_section_and_setting_stands_in_it_below_its_description() -> None:
    for section in sections(Settings):
        assert f"\n[{'.'.join(section.path)}]\n" in TEXT
        for entry in section.entries:
            assert f"\n#{entry.name} =" in TEXT
    assert re.search(r"\n# A host that shows no sign of life .*\n#expiration = 30.0\n", TEXT)


@pytest.mark.parametrize(("more", "code"), [([], 2), (["--force"], 0)])
def test_a_file_that_is_there_is_overwritten_by_force_only(
    tmp_path: Path, more: list[str], code: int
) -> None:
    file = tmp_path / "changefeed.toml"
    file.write_text("mine")
    assert CliRunner().invoke(app, ["init-config", str(file), *more]).exit_code == code
    assert (file.read_text() == "mine") == bool(code)


def test_force_is_no_advice_for_what_is_no_file(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["init-config", str(tmp_path)])
    assert found.exit_code == 2
    assert str(tmp_path) in found.stderr
    assert "--force" not in found.stderr

"""What is only typed by mistake: a message and an exit code, and never a traceback."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from changefeed.cli.app import app
from changefeed.cli.children import MOST_CHILDREN
from changefeed.cli.positions import _write_file
from changefeed.runtime.errors import UserError

pytestmark = pytest.mark.real_time


def called(arguments: Sequence[str], **environ: str) -> Result:
    return CliRunner().invoke(app, arguments, env=environ)


@pytest.mark.parametrize("command", [["hosts", "--observer=log"], ["brokers"]])
def test_more_processes_than_a_machine_has_are_a_mistyped_number(command: list[str]) -> None:
    found = called([*command, "9" * 400])
    assert found.exit_code == 2
    assert str(MOST_CHILDREN) in found.output


def test_positions_are_not_saved_to_links_in_a_circle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").symlink_to("there")
    Path("there").symlink_to("here")
    with pytest.raises(UserError, match="'here' cannot be written"):
        _write_file(Path("here"), b"{}")
    assert Path("here").is_symlink()


@pytest.mark.parametrize("ranges", [[], ["r0", "--all"]])
def test_a_whole_fleet_is_paused_by_no_slip(ranges: list[str]) -> None:
    found = called(["pause", *ranges, "--leases=sqlite:leases.db"])
    assert found.exit_code == 2
    assert "--all" in found.output

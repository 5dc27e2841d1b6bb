"""What is only typed by mistake: a message and an exit code, and never a traceback."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from changefeed.cli.app import app
from changefeed.cli.position_export import write_file
from changefeed.runtime.errors import UserError

pytestmark = pytest.mark.real_time


def called(arguments: Sequence[str], **environ: str) -> Result:
    return CliRunner().invoke(app, arguments, env=environ)


@pytest.mark.parametrize("number", ["inf", "nan", "1e400", "-1"])
@pytest.mark.parametrize(
    "command",
    [["doctor", "--watch"], ["range", "merge", "a", "b", "--wait"]],
    ids=" ".join,
)
def test_no_number_of_seconds_goes_on_for_ever(command: list[str], number: str) -> None:
    *words, option = command
    found = called([*words, f"{option}={number}"], COLUMNS="200")
    assert (found.exit_code, f"Invalid value for '{option}'" in found.output) == (2, True)


@contextmanager
def gives_up_after(seconds: int) -> Iterator[None]:
    """Fail where a call hangs, which an exception of a signal's handler ends."""

    def fail(*_: object) -> None:
        pytest.fail(f"it has waited for {seconds} s")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_positions_are_not_saved_to_links_in_a_circle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("here").symlink_to("there")
    Path("there").symlink_to("here")
    with pytest.raises(UserError, match="'here' cannot be written"):
        write_file(Path("here"), b"{}")
    assert Path("here").is_symlink()


@pytest.mark.parametrize("ranges", [[], ["r0", "--all"]])
def test_a_whole_fleet_is_paused_by_no_slip(ranges: list[str]) -> None:
    found = called(["pause", *ranges, "--leases=sqlite:leases.db"])
    assert found.exit_code == 2
    assert "--all" in found.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--config=pipe"],
        ["broker", "--config=pipe"],
        ["pipeline", "status", "--config=pipe"],
        ["positions", "import", "pipe"],
        ["dead-letters", "list", "--set=observer.dead_letters=jsonl:pipe"],
    ],
    ids=" ".join,
)
def test_what_has_no_end_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with gives_up_after(20):
        found = called(arguments)
    assert found.exit_code == 2, found.output
    assert "pipe" in found.output

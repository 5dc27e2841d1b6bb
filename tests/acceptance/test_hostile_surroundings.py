"""Commands under odd locales, without room or streams, and interrupted: no traceback."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.commands import COMMAND, PATIENCE, a_log_of
from tests.support.leased_log import make_leased_log, reset_positions, stored

pytestmark = pytest.mark.real_time

PLACES = "--feed=eventlog:log --leases=sqlite:leases.db"


def run(arguments: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run ``changefeed`` with arguments and redirections that a shell reads."""
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {arguments}', "sh", *COMMAND],
        cwd=cwd,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("command", ["run", "leases import"])
def test_help_is_printed_where_the_locale_has_no_such_letters(
    tmp_path: Path, command: str
) -> None:
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = run(f"{command} --help", tmp_path, **ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage:" in done.stdout


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["--version", "--help", f"status {PLACES}"])
def test_a_full_output_is_said_in_one_line(
    tmp_path: Path, command: str, unbuffered: str
) -> None:
    asyncio.run(make_leased_log(tmp_path))
    done = run(f"{command} >/dev/full", tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (
        1,
        "changefeed: [Errno 28] No space left on device\n",
    )


@pytest.mark.parametrize("file", ["catalog.db", "brokers/1/records.db"])
@pytest.mark.parametrize(
    "command",
    [
        "run --feed=eventlog:log --leases=sqlite:leases.db --observer=log",
        "produce log - --key=k",
        "log seal log",
    ],
)
def test_a_log_that_is_damaged_where_it_has_no_checksums_is_refused(
    tmp_path: Path, file: str, command: str
) -> None:
    a_log_of(5, tmp_path)
    damaged = tmp_path / "log" / file
    damaged.write_bytes(damaged.read_bytes().replace(b"TABLE log", b"TABLE \xffog"))
    done = run(f"{command} <&0", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "The log is damaged: restore its directory from a copy" in done.stderr


def test_a_reader_that_has_enough_is_no_failure_to_speak_of(tmp_path: Path) -> None:
    done = run("run --help | true", tmp_path)
    assert done.stderr == ""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_streams_may_be_closed(tmp_path: Path, closed: str) -> None:
    done = run(f"produce log people.jsonl --key=name {closed}", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)


@pytest.mark.parametrize(
    "command", ["produce log - --key=name", "positions restore -", "leases import -"]
)
def test_nothing_can_be_read_from_a_standard_input_that_is_closed(
    tmp_path: Path, command: str
) -> None:
    done = run(f"{command} <&-", tmp_path)
    says = "changefeed: standard input is closed: name a file, or give it something to read\n"
    assert (done.returncode, done.stderr) == (2, says)


@pytest.mark.parametrize("given", ["<&-", "</dev/null", "<bytes"])
@pytest.mark.parametrize("command", ["reset --all --to=beginning", "positions restore saved"])
def test_who_gives_no_answer_has_changed_nothing(
    tmp_path: Path, command: str, given: str
) -> None:
    asyncio.run(make_leased_log(tmp_path))
    (tmp_path / "bytes").write_bytes(b"\xff\n")
    assert run(f"positions save saved {PLACES}", tmp_path).returncode == 0
    reset_positions(tmp_path)
    before = stored(tmp_path, "continuation")
    done = run(f"{command} {PLACES} {given}", tmp_path)
    assert (done.returncode, "nothing was changed" in done.stdout) == (1, True), done.stderr
    assert stored(tmp_path, "continuation") == before


WATCHED = """
import atexit, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it

def note(where):
    handlers = {signal.SIG_DFL: "system", signal.default_int_handler: "Python"}
    print(where, handlers[signal.getsignal(signal.SIGINT)], file=sys.stderr)

class Noting:
    def find_spec(self, name, path, target=None):
        if name in ("changefeed.cli.app", "changefeed.cli.init_config"):
            note(name.rpartition(".")[2])

sys.meta_path.insert(0, Noting())
sys.argv = ["changefeed", "init-config", "a.toml"]
atexit.register(note, "end")
from changefeed.cli import main
main()
"""


def test_ctrl_c_is_no_exception_as_long_as_modules_are_imported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", WATCHED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "wrote a.toml\n")
    assert done.stderr.splitlines() == ["app system", "init_config system", "end Python"]


# Python itself loses an interrupt, or shows a traceback, before it runs anything of ours. On a
# busy machine that takes a second.
BEGUN = "from changefeed.cli import main; print('begun', flush=True); main()"


@pytest.mark.parametrize("delay", [0.1, 0.3, 0.6])
@pytest.mark.parametrize(
    "command", ["status --watch", "run --observer=log", "produce log - --key=k"]
)
def test_ctrl_c_shows_no_traceback_however_early_it_comes(
    tmp_path: Path, command: str, delay: float
) -> None:
    a_log_of(5, tmp_path)
    (tmp_path / "leases.db").touch()
    places = ("--feed=eventlog:log", "--leases=sqlite:leases.db")
    with subprocess.Popen(
        [
            *COMMAND[:2],
            "-c",
            BEGUN,
            *command.split(),
            *(() if "produce" in command else places),
        ],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        try:
            _, said = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert "Traceback" not in said or "changefeed/cli" not in said, said
    assert process.returncode in (0, 1, 130, -signal.SIGINT)

"""Commands under odd locales, without room or streams, and interrupted: no traceback."""

import asyncio
import os
import signal
from pathlib import Path
from random import Random
from subprocess import CompletedProcess

import pytest

from tests.support.commands import COMMAND, a_log_of
from tests.support.processes import ended, started

PLACES = "--feed=eventlog:log --leases=sqlite:leases.db"


def run(arguments: str, cwd: Path, **environ: str) -> CompletedProcess[str]:
    """Run ``changefeed`` with arguments and redirections that a shell reads."""
    shell = ("sh", "-c", f'exec "$@" {arguments}', "sh", *COMMAND)
    return ended(*shell, cwd=cwd, env={**os.environ, **environ})


@pytest.mark.parametrize(("command", "unbuffered"), [("--version", ""), ("--help", "1")])
def test_a_full_output_is_said_in_one_line(
    tmp_path: Path, command: str, unbuffered: str
) -> None:
    done = run(f"{command} >/dev/full", tmp_path, PYTHONUNBUFFERED=unbuffered)
    assert (done.returncode, done.stderr) == (
        1,
        "changefeed: [Errno 28] No space left on device\n",
    )


@pytest.mark.parametrize("command", ["produce log - --key=name", "positions import -"])
def test_nothing_can_be_read_from_a_standard_input_that_is_closed(
    tmp_path: Path, command: str
) -> None:
    done = run(f"{command} <&-", tmp_path)
    says = "changefeed: standard input is closed: name a file, or give it something to read\n"
    assert (done.returncode, done.stderr) == (2, says)


@pytest.mark.parametrize("redirection", ["<&-", "<a-file"])
def test_the_end_of_a_standard_input_that_is_no_pipe_is_a_mistake_with_advice(
    tmp_path: Path, redirection: str
) -> None:
    (tmp_path / "a-file").touch()
    done = run(f"run --observer=count --stop-at-eof {redirection}", tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert done.stderr.startswith("changefeed: --stop-at-eof ")
    assert done.stderr.endswith("leave it out\n")


# Python itself loses an interrupt, or shows a traceback, before it runs anything of ours. On a
# busy machine that takes a second.
BEGUN = "from changefeed.cli import main; print('begun', flush=True); main()"


@pytest.mark.parametrize(
    "command",
    [f"status --watch {PLACES}", f"run --observer=log {PLACES}", "produce log - --key=k"],
)
async def test_ctrl_c_shows_no_traceback_however_early_it_comes(
    tmp_path: Path, command: str
) -> None:
    a_log_of(5, tmp_path)
    (tmp_path / "leases.db").touch()
    async with started(*COMMAND[:2], "-c", BEGUN, *command.split(), cwd=tmp_path) as process:
        await process.prints("begun")
        await asyncio.sleep(Random().random() / 2)
        process.process.send_signal(signal.SIGINT)
        assert await process.ends() in (0, 1, 130, -signal.SIGINT)
        said = process.said
    assert "Traceback" not in said or "changefeed/cli" not in said, said

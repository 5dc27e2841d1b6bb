"""What a command imports: the less, the sooner it answers, and no extra to say what it does."""

import subprocess
import sys

import pytest

from changefeed.cli.app import COMMANDS

HEAVY = {
    *("aiohttp", "aiosqlite", "azure", "mmh3", "msgspec", "opentelemetry", "pyarrow"),
    *("pydantic", "pyspark", "rich", "structlog", "tenacity"),
}


def imported(*arguments: str) -> set[str]:
    """Return the top-level names of what a command has imported when it ends."""
    code = f"""
import sys
from changefeed.cli import main
sys.argv = {["changefeed", *arguments]!r}
try:
    main()
except SystemExit:
    print(*sorted({{x.partition(".")[0] for x in sys.modules}}))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines()[-1].split())


def test_the_version_is_printed_without_any_library_of_hosts() -> None:
    assert imported("--version") & HEAVY == set()


LIGHT = [name for name, place in COMMANDS.items() if ".commands." in place]
QUICK = {"msgspec", "rich"}
"""Imported in hundredths of a second; help itself is made with rich."""


def test_the_help_of_a_command_imports_nothing_that_does_its_work() -> None:
    code = f"""
import sys
from click import Context
from typer.main import get_command
from changefeed.cli.app import app
root = get_command(app)
for name in {LIGHT}:
    root.get_command(Context(root), name).get_short_help_str()
print(*sorted({{x.partition(".")[0] for x in sys.modules}}))
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) & HEAVY - QUICK == set()


def test_no_client_of_azure_is_imported_for_other_feeds_and_stores() -> None:
    code = "import sys, changefeed.cli.status_tables; print('azure' in sys.modules)"
    line = [sys.executable, "-P", "-c", code]
    assert subprocess.run(line, capture_output=True, check=True).stdout == b"False\n"


def test_a_host_imports_no_spark() -> None:
    assert imported("run", "--help") & {"deltalake", "pyarrow", "pyspark"} == set()


_WITHOUT = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"obstore", "pyarrow", "pyspark", "numpy", "asyncpg", "redis"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
import runpy
runpy.run_module("changefeed", run_name="__main__")
"""


@pytest.mark.parametrize("command", ["", "run", "broker", "log compact", "pipeline run --once"])
def test_no_command_needs_an_extra_to_say_what_it_does(command: str) -> None:
    arguments = [*command.split(), "--help"]
    line = [sys.executable, "-c", _WITHOUT, *arguments]
    helped = subprocess.run(line, capture_output=True, text=True, check=False)
    assert helped.returncode == 0, helped.stderr
    assert "Usage" in helped.stdout

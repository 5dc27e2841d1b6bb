"""What a command imports: the less, the sooner it answers, and no extra to say what it does."""

from pathlib import Path

import pytest

from changefeed import open_sync_producer
from tests.support.commands import changefeed
from tests.support.processes import python

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
    return set(python(code).stdout.splitlines()[-1].split())


def test_the_version_is_printed_without_any_library_of_hosts() -> None:
    assert imported("--version") & HEAVY == set()


QUICK = {"msgspec", "rich"}
"""Imported in hundredths of a second; help itself is made with rich."""


def test_help_imports_nothing_that_does_the_work_of_a_command() -> None:
    code = """
import sys
from click import Context
from typer.main import get_command
from changefeed.cli.app import app
root = get_command(app)
for name in root.list_commands(None):
    root.get_command(Context(root), name).get_short_help_str()
print(*sys.modules)
"""
    modules = python(code).stdout.split()
    assert {x.partition(".")[0] for x in modules} & HEAVY - QUICK == set()
    ours = [x for x in modules if x.startswith("changefeed.")]
    assert len(ours) <= 60, sorted(ours)


def test_no_client_of_azure_is_imported_for_other_feeds_and_stores() -> None:
    code = "import sys, changefeed.cli.status_tables; print('azure' in sys.modules)"
    assert python(code).stdout == "False\n"


_BEFORE_NO_CHANGE = {
    *("changefeed.cli.supervisor", "changefeed.feeds.cosmos.feed", "changefeed.pipeline"),
    *("changefeed.fleet.peers", "changefeed.host.endpoints", "changefeed.host.page"),
    *("opentelemetry.sdk._logs", "opentelemetry.sdk.trace"),
    *("aiohttp", "asyncpg", "attr", "azure", "deltalake", "obstore", "pyarrow", "pygments"),
    *("pyspark", "redis", "rich"),
}

_OBSERVER = """
import gc, os, sys
from changefeed.host import web

web.HEAD_START = 600.0  # a busy machine has no change within half a second

class First:
    async def process(self, context, changes):
        print(*sys.modules, gc.isenabled(), gc.get_stats()[0]["collections"], flush=True)
        os._exit(0)
"""


def test_a_host_over_a_log_imports_what_its_first_change_takes(tmp_path: Path) -> None:
    log, leases = tmp_path / "log", tmp_path / "leases.db"
    with open_sync_producer(log) as producer:
        producer.send("k")
    (tmp_path / "first.py").write_text(_OBSERVER, "utf-8")
    places = (f"--feed=eventlog:{log}", f"--leases=sqlite:{leases}", "--observer=first:First")
    done = changefeed("run", *places, cwd=tmp_path)
    *modules, is_collecting, collections = done.stdout.split()
    assert _BEFORE_NO_CHANGE & {*modules} == set()
    ours = [x for x in modules if x.startswith("changefeed.")]
    assert len(ours) <= 207, sorted(ours)
    assert is_collecting == "True"
    assert int(collections) < 120, "garbage was looked for among what was imported"


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
    assert "Usage" in python(_WITHOUT, *command.split(), "--help").stdout

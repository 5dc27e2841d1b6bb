"""The sample of ownership in Redis and checkpoints in Blob, as its README says to run it."""

import os
import re
import sys
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.support import servers
from tests.support.processes import ended

ROOT = Path(__file__).parents[2]


def sample(*flags: str, path: str | None = None) -> CompletedProcess[str]:
    kept = {x: y for x, y in os.environ.items() if not x.startswith("CHANGEFEED_")}
    env = kept | {"PATH": kept["PATH"] if path is None else path}
    program = (sys.executable, "-m", "samples.redis_and_blob", *flags)
    return ended(*program, cwd=ROOT, env=env)


def installed(make: type[servers.Server]) -> Path:
    """Return the folder of a server's program."""
    try:
        server = make()
    except servers.Missing as missing:
        pytest.skip(str(missing))
    folder = Path(server.command()[0]).parent
    server.discard()
    return folder


def test_every_change_is_handled_though_redis_forgets_all() -> None:
    folders = {installed(servers.Redis), installed(servers.Azurite)}
    path = ":".join([*map(str, folders), os.environ["PATH"]])
    done = sample("--changes=800", path=path)
    assert done.returncode == 0, done.stderr
    assert "now Redis forgets the fleet" in done.stdout
    found = re.search(r"all (\d+) changes are handled, (\d+) of them again", done.stdout)
    assert found is not None
    assert found[1] == "800"
    assert int(found[2]) <= 8 * 20  # what is in hand of each range

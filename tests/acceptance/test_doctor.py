"""A fleet that is looked at by its doctor."""

import json
import shutil
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from changefeed.cli.diagnosing import look_at_disks
from changefeed.host.settings import load_settings
from tests.support.commands import PLACES, QUICK, a_log_of, invoked, running

FAILS = """
def fails(changes):
    raise ValueError("no such table")
"""


def diagnosis(place: Path, code: int) -> list[dict[str, Any]]:
    said = invoked("doctor", "--watch=3", "--json", *PLACES, *QUICK, cwd=place)
    assert said.returncode == code, said.stderr
    found: list[dict[str, Any]] = json.loads(said.stdout)
    return found


async def test_ranges_that_fail_and_a_host_that_was_killed_are_said(tmp_path: Path) -> None:
    a_log_of(20, tmp_path)
    (tmp_path / "observing.py").write_text(FAILS)
    host = ("run", *PLACES, *QUICK, "--name=anna", "--observer=observing:fails")
    async with running(*host, cwd=tmp_path) as anna:
        await anna.says('"event": "observer.failed"', times=8)
        found = diagnosis(tmp_path, 1)
        assert {x["about"] for x in found if "no such table" in x["text"]} == {
            f"range e1.p{n:02}.v00-ff" for n in range(1, 5)
        }
        assert "host anna" not in {x["about"] for x in found}, "it lives, and it answers"
        anna.process.send_signal(signal.SIGKILL)
        await anna.process.wait()
    about = [x["text"] for x in diagnosis(tmp_path, 1) if x["about"] == "host anna"]
    assert any("no sign of life" in x for x in about)
    assert any("does not answer from here" in x for x in about)


def test_a_disk_that_is_nearly_full_is_said_where_something_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = SimpleNamespace(total=1000, used=990, free=10)
    looked_at: list[Path] = []

    def look(place: Path) -> SimpleNamespace:
        looked_at.append(place)
        return usage

    monkeypatch.setattr(shutil, "disk_usage", look)
    owners, done, log = (tmp_path / x for x in ("owners", "done", "log"))
    for place in (owners, done, log):
        place.touch()
    settings = load_settings(
        None,
        {
            "feed": {"address": f"eventlog:{log}"},
            "leases": {"address": f"sqlite:{owners}", "checkpoints": f"sqlite:{done}"},
            "observer": {"dead_letters": "postgresql://there/letters"},
        },
    )
    (found,) = look_at_disks(settings)
    assert "nearly full: 1% are free" in found.text
    assert looked_at == [log, owners, done]
    usage.free = 500
    assert look_at_disks(settings) == []

"""A package that we did not write brings a feed and leases: every command works with them."""

import ast
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import QUICK, changefeed, running
from tests.support.thirdparty import PROJECT, site_with_shelf

PLACES = ("--feed=shelf:journal", "--leases=shelf:leases")
CHANGES = 50


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a journal of 50 changes in two ranges, one of them split."""
    site_with_shelf(tmp_path / "site")
    entries = [{"append": {"key": f"k{n}", "body": str(n)}} for n in range(CHANGES)]
    journal = [{"ranges": 2}, *entries, {"split": "r0"}]
    (tmp_path / "journal").write_text("".join(f"{json.dumps(x)}\n" for x in journal))
    return tmp_path


def environment(home: Path, **more: str) -> dict[str, str]:
    ours = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, (str(home / "site"), ours))), **more}


def diagnostics(home: Path, *arguments: str, **more: str) -> tuple[int, list[dict[str, Any]]]:
    env = environment(home, **more)
    done = changefeed("doctor", "--watch=0", *PLACES, *arguments, "--json", cwd=home, env=env)
    return done.returncode, json.loads(done.stdout) if done.stdout else [{"said": done.stderr}]


async def test_a_host_runs_over_a_feed_and_leases_of_another_package(home: Path) -> None:
    observer = ("--observer=jsonl", "--option=path=out.jsonl", "--name=anna")
    env = environment(home)
    async with running("run", *PLACES, *QUICK, *observer, cwd=home, env=env) as host:
        await host.says('"event": "lease.acquired"', times=4)  # r0 and r1, then r0's halves
        out = home / "out.jsonl"
        await host.reaches(
            lambda: out.exists() and len(out.read_text().splitlines()) >= CHANGES
        )
        host.process.send_signal(signal.SIGTERM)
        assert await host.ends() == 0, host.said
    bodies = sorted(json.loads(x)["body"] for x in out.read_text().splitlines())
    assert bodies == list(range(CHANGES))
    shown = changefeed("status", *PLACES, "--json", cwd=home, env=env)
    assert {x["lag"] for x in json.loads(shown.stdout)["ranges"]} <= {0, None}


def test_check_shows_what_the_backends_find(home: Path) -> None:
    (home / "leases").mkdir()
    code, found = diagnostics(home)
    assert code == 0, found
    assert [(x["about"], x["severity"]) for x in found] == [
        ("feed", "ok"),
        ("journal", "ok"),
        ("file", "ok"),
        ("rights", "ok"),
        ("leases", "ok"),
    ]


def test_check_shows_advice_of_backends(home: Path) -> None:
    with (home / "journal").open("a") as journal:
        journal.write('{"append":')
    code, found = diagnostics(home, "--leases=shelf:journal")
    assert code == 2, found
    advice = {(x["severity"], x["advice"]) for x in found}
    assert ("warning", "look whether its producer was killed") in advice
    assert "File exists" in next(x["text"] for x in found if x["about"] == "leases")


def test_own_settings_come_from_file_environment_and_flags(home: Path) -> None:
    (home / "changefeed.toml").write_text("[backends.shelf]\nmax_page = 5\n")
    file = "--config=changefeed.toml"
    code, found = diagnostics(home, file)
    assert code == 0, found
    code, (said,) = diagnostics(home, file, CHANGEFEED_BACKENDS__SHELF__MAX_PAGE="none")
    assert (code, "backends.shelf.max_page" in said["said"]) == (2, True)
    code, (said,) = diagnostics(home, file, "--set=backends.shelf.max_pages=5")
    assert (code, "backends.shelf.max_pages" in said["said"]) == (2, True)


def test_check_warns_of_settings_that_no_backend_in_use_reads(home: Path) -> None:
    code, found = diagnostics(home, CHANGEFEED_BACKENDS__SHELV__MAX_PAGE="5")
    assert code == 0, found
    assert [x["text"] for x in found if x["about"] == "settings"] == [
        "backends.shelv is set, and nothing is kept in such a backend"
    ]


def test_looking_at_leases_of_another_package_creates_none(home: Path) -> None:
    done = changefeed("status", *PLACES, cwd=home, env=environment(home))
    assert (done.returncode, done.stderr) == (
        2,
        "changefeed: there are no leases at leases yet\n",
    )
    assert not (home / "leases").exists()


def test_the_package_needs_nothing_but_what_is_promised() -> None:
    sources = [x.read_text() for x in (PROJECT / "changefeed_shelf").glob("*.py")]
    imported = {y for x in sources for y in re.findall(r"from (changefeed[.\w]*) import", x)}
    ours = {x for x in imported if not x.startswith("changefeed_shelf")}
    assert ours == {"changefeed", "changefeed.backends"}


def test_its_store_has_sixty_lines() -> None:
    source = (PROJECT / "changefeed_shelf" / "leases.py").read_text()
    (store,) = (x for x in ast.parse(source).body if getattr(x, "name", "") == "ShelfStore")
    assert len(ast.unparse(store).splitlines()) <= 60

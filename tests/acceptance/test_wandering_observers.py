"""A host with relative places in its settings, whose observer changes the working directory."""

import json
from pathlib import Path

import aiohttp

from tests.support.commands import PLACES, QUICK, a_log_of, changefeed, invoked, owners, running

OBSERVERS = """
import os

def wander(changes):
    os.chdir("elsewhere" if os.path.isdir("elsewhere") else ".")
    for change in changes:
        if change.value()["n"] in (17, 117):
            raise ValueError("not this one")
"""
FIRST, SECOND = "the first token, long enough", "another token, long enough"
SETTINGS = """
[observer]
dead_letters = "sqlite:letters.db"
on_failure = "dead-letter"
retry = { attempts = 1, max_delay = 0.05 }
[web]
token_file = "token"
"""


async def test_a_host_goes_on_wherever_its_observer_goes(tmp_path: Path) -> None:
    a_log_of(100, tmp_path)
    (tmp_path / "wandering.py").write_text(OBSERVERS)
    (tmp_path / "settings.toml").write_text(SETTINGS)
    (tmp_path / "token").write_text(FIRST)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    more = ("--observer=wandering:wander", "--config=settings.toml")
    async with running("run", *PLACES, *QUICK, *more, cwd=tmp_path) as host:
        await host.says('"event": "change.dead_lettered"')
        lines = "".join(f'{{"k": "key-{n % 50}", "n": {n}}}\n' for n in range(100, 200))
        changefeed("produce", "log", "-", "--key=k", cwd=tmp_path, stdin=lines)
        await host.says('"event": "change.dead_lettered"', times=2)
        (tmp_path / "token").write_text(SECOND)
        (listening,) = host.events("web.listening")
        async with aiohttp.ClientSession(listening["address"]) as page:
            for token, status in ((FIRST, 401), (SECOND, 200)):
                bearer = {"Authorization": f"Bearer {token}"}
                async with page.get("/page/dead-letters", headers=bearer) as answer:
                    assert answer.status == status, await answer.text()
        await host.stops()
    assert host.events("call.failed", "process.warning") == []
    assert not [x for x in host.events("lease.released") if x["how"] == "lost"]
    assert owners(tmp_path) == [None] * 4
    letters = invoked("dead-letters", "list", "--json", "--config=settings.toml", cwd=tmp_path)
    assert len(json.loads(letters.stdout)) == 2
    assert [*elsewhere.iterdir()] == []

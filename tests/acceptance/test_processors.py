"""Several processors in one process, as users run them: started, looked at, stopped."""

import json
import os
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.commands import QUICK, a_log_of, invoked, running
from tests.support.processes import Running

NAMES = ("orders", "to-search")
PROCESSOR = """
[processors.{name}.feed]
address = "eventlog:{name}/log"
[processors.{name}.leases]
address = "sqlite:{name}.db"
[processors.{name}.observer]
name = "note:Note"
options = {{ path = "{name}.jsonl" }}
"""
NOTE = """
import asyncio

class Note:
    def __init__(self, path):
        self._path = path

    async def process(self, context, changes):
        with open(self._path, "a") as file:
            file.writelines(str(x.value()["n"]) + "\\n" for x in changes)
        await asyncio.sleep(0.02)
"""
RUN = ("run", "--config=c.toml", "--name=anna", *QUICK)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    a_log_of(500, folder, parts=2)
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A folder with settings of two processors, each with a log of 500 changes in 2 ranges."""
    for name in NAMES:
        shutil.copytree(made / "log", tmp_path / name / "log")
    (tmp_path / "note.py").write_text(NOTE)
    write_settings(tmp_path, *NAMES)
    return tmp_path


def write_settings(place: Path, *names: str, more: str = "") -> None:
    text = "".join(PROCESSOR.format(name=x) for x in names)
    (place / "c.toml").write_text(text + more)


def status(place: Path, name: str) -> Any:
    shown = invoked("status", "--config=c.toml", f"--processor={name}", "--json", cwd=place)
    assert shown.returncode == 0, shown.stderr
    return json.loads(shown.stdout)


def lags(place: Path, name: str) -> set[int]:
    return {x["lag"] for x in status(place, name)["ranges"]}


def delivered(place: Path, name: str) -> list[int]:
    file = place / f"{name}.jsonl"
    return [int(x) for x in file.read_text().split()] if file.exists() else []


def is_read(place: Path, name: str) -> bool:
    return {*delivered(place, name)} == {*range(500)}


async def all_is_read(host: Running, place: Path, *names: str) -> None:
    for name in names:
        await host.reaches(partial(is_read, place, name))


async def test_two_feeds_reach_two_observers_and_one_sigterm_stops_both(place: Path) -> None:
    async with running(*RUN, cwd=place) as host:
        await all_is_read(host, place, *NAMES)
        seen = {name: await looked_at(host, place, name) for name in NAMES}
        await host.stops()
    for name in NAMES:
        assert sorted(delivered(place, name)) == [*range(500)]
        assert {x["owner"] for x in status(place, name)["ranges"]} == {None}
        assert seen[name] == {"anna"}
    events = [x for x in host.events() if x["event"].startswith(("host.", "lease."))]
    assert {x.get("processor") for x in events} == {*NAMES}
    stopped = host.events("host.stopped")
    assert {(x["processor"], x["released"]) for x in stopped} == {(x, 2) for x in NAMES}


async def looked_at(host: Running, place: Path, name: str) -> set[str]:
    """Ask for what the process serves; return who owns the ranges of a processor."""
    (member,) = status(place, name)["hosts"]
    top = host.events("web.listening")[0]["address"]
    assert member["address"] == f"{top}/processors/{name}"
    async with aiohttp.ClientSession() as session:

        async def get(url: str) -> tuple[int, str]:
            async with session.get(url, allow_redirects=False) as answer:
                return answer.status, answer.headers.get("Location") or await answer.text()

        code, ready = await get(f"{top}/readyz")
        assert (code, {*json.loads(ready)["processors"]}) == (200, {*NAMES})
        assert (await get(f"{top}/livez"))[0] == 200
        metrics = (await get(f"{top}/metrics"))[1].splitlines()
        owned = [x for x in metrics if x.startswith("changefeed_lease_owned{")]
        assert [x.rpartition(" ")[2] for x in owned if f'processor="{name}"' in x] == ["2.0"]
        assert await get(f"{top}/") == (302, "processors/orders/")
        assert (await get(f"{top}/processors/{name}/"))[0] == 200
        page = json.loads((await get(f"{top}/processors/{name}/page/state"))[1])["view"]
        assert (page["processor"], page["processors"]) == (name, [*NAMES])
        leases = json.loads((await get(f"{member['address']}/leases"))[1])["ranges"]
    return {x["owner"] for x in leases}


async def test_one_that_cannot_be_opened_yet_holds_up_no_other_and_no_stop(
    place: Path,
) -> None:
    away = "[processors.away.feed]\naddress = 'cosmos+http://127.0.0.1:1/d/c'\n"
    away += "[processors.away.leases]\naddress = 'sqlite:away.db'\n"
    away += "[processors.away.observer]\nname = 'count'\n"
    write_settings(place, "orders", more=away)
    async with running(*RUN, cwd=place) as host:
        await all_is_read(host, place, "orders")
        top = host.events("web.listening")[0]["address"]
        async with aiohttp.ClientSession() as session, session.get(f"{top}/readyz") as answer:
            ready = (await answer.json())["processors"]
            assert answer.status == 503
        assert {name: x["ready"] for name, x in ready.items()} == {
            "orders": True,
            "away": False,
        }
        await host.stops()
    assert {x["owner"] for x in status(place, "orders")["ranges"]} == {None}


async def test_one_that_fails_stops_the_others_and_is_named(place: Path) -> None:
    write_settings(place, *NAMES)
    async with running(*RUN, cwd=place) as host:
        await all_is_read(host, place, *NAMES)
        async with running(*RUN, "--processor=orders", cwd=place) as second:
            assert await second.ends() == 2  # the name is taken
        assert "processor orders: " in second.said
        for ending in ("", "-wal", "-shm"):
            os.unlink(f"{place}/to-search.db{ending}")  # noqa: PTH108 - of three files
        assert await host.ends() != 0
    assert "processor to-search: " in host.said.splitlines()[-1]
    assert {x["owner"] for x in status(place, "orders")["ranges"]} == {None}

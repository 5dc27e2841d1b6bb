"""``changefeed monitor`` and the page of a host, as commands serve them."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.commands import PLACES, QUICK, a_log_of, invoked, running
from tests.support.processes import PATIENCE, Running

TOKEN = "sixteen characters"


async def address(host: Running) -> str:
    await host.says('"event": "web.listening"')
    return str(host.events("web.listening")[0]["address"])


async def state(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/page/state") as answer:
        assert answer.status == 200, await answer.text()
        return (await answer.json())["view"]


async def comes(url: str, so: Callable[[Any], bool]) -> Any:
    """Return what the page shows once it is so."""
    async with asyncio.timeout(PATIENCE):
        while not so(view := await state(url)):  # noqa: ASYNC110 - it has to be asked
            await asyncio.sleep(0.2)
    return view


async def scale(url: str) -> Any:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/scale") as answer:
        return await answer.json()


async def act(url: str, **wanted: Any) -> Any:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    async with aiohttp.ClientSession(headers=bearer) as session:
        body = {"by": "Rosa", "confirm": True, **wanted}
        async with session.post(f"{url}/page/actions", json=body) as answer:
            return await answer.json()


async def test_a_monitor_shows_a_running_fleet_and_one_that_was_stopped(
    tmp_path: Path,
) -> None:
    a_log_of(100, tmp_path)
    env = {"CHANGEFEED_WEB__TOKEN": TOKEN}
    run = ("run", *PLACES, *QUICK, "--name=anna", "--observer=count")
    async with running(*run, cwd=tmp_path, env=env) as anna:
        await anna.says('"event": "lease.acquired"', times=4)
        look = ("monitor", *PLACES, *QUICK, "--actions", "--lag-per-host=10")
        async with running(*look, cwd=tmp_path, env=env) as board:
            url = await address(board)
            view = await comes(
                url,
                lambda x: (
                    bool(x["hosts"][0]["started_at"]) and not any(y["lag"] for y in x["ranges"])
                ),
            )
            assert [x["name"] for x in view["hosts"]] == ["anna"]
            assert {x["owner"] for x in view["ranges"]} == {"anna"}
            assert view["acts"] is True
            name = view["ranges"][0]["range"]
            said = await act(url, action="pause", ranges=[name], reason="the disk is full")
            assert said["says"][0].startswith(f"{name}: paused; anna finishes")
            done = board.events("page.action")[0]
            assert (done["by"], done["remote"], done["ranges"]) == ("Rosa", "127.0.0.1", [name])
            own = await state(await address(anna))
            assert (own["me"], len(own["ranges"])) == ("anna", 4)
            await anna.stops()
            view = await comes(url, lambda x: not x["hosts"])
            assert await scale(url) == {"desired_hosts": 0}, "all is read, one is paused"
            states = sorted(x["state"] for x in view["ranges"])
            assert states == ["paused", "unowned", "unowned", "unowned"]
            await board.stops()
    assert "Traceback" not in board.said
    ranges = json.loads(invoked("status", *PLACES, "--json", cwd=tmp_path).stdout)["ranges"]
    assert [x["note"] for x in ranges].count("the disk is full") == 1

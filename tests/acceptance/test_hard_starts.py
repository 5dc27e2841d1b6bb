"""A host that starts where something is missing: a store, a terminal, a pipe."""

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import pytest

from tests.support.commands import COMMAND, QUICK, a_log_of, running
from tests.support.emulator_process import free_port
from tests.support.processes import ended


@pytest.fixture
def place(tmp_path: Path) -> Path:
    a_log_of(20, tmp_path)
    return tmp_path


async def get(url: str) -> tuple[int, Any]:
    def ask() -> tuple[int, Any]:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, json.load(answer)
        except HTTPError as error:
            with error:
                return error.code, json.load(error)

    return await asyncio.to_thread(ask)


async def test_a_host_waits_for_stores_that_are_away_and_says_so(tmp_path: Path) -> None:
    away, port = free_port(), free_port()
    where = (
        f"--feed=cosmos+http://127.0.0.1:{away}/d/c",
        f"--leases=cosmos+http://127.0.0.1:{away}/d/leases",
    )
    more = ("--observer=count", f"--set=web.port={port}", "--set=log.format=json")
    async with running("run", *where, *QUICK, *more, cwd=tmp_path) as host:
        await host.says('"event": "call.failed"', times=2)
        assert {x["operation"] for x in host.events("call.failed")} <= {
            "open feed",
            "open leases",
        }
        assert (await get(f"http://127.0.0.1:{port}/livez"))[0] == 200
        status, shown = await get(f"http://127.0.0.1:{port}/readyz")
        assert (status, shown["ready"]) == (503, False)
        await host.stops()
        assert "Traceback" not in host.said


def test_the_end_of_a_standard_input_that_is_no_pipe_is_a_mistake_with_advice(
    place: Path,
) -> None:
    program = " ".join(COMMAND)
    for redirection in ("<&-", "<a-file"):
        (place / "a-file").touch()
        shell = f"{program} run --observer=count --stop-at-eof {redirection}"
        done = ended("/bin/sh", "-c", shell, cwd=place)
        assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
        assert "changefeed: --stop-at-eof " in done.stderr
        assert done.stderr.endswith("leave it out\n")

"""What can be said of the container files without an engine: they fit the project."""

import asyncio
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from aiohttp import web

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")


def lines(name: str) -> list[str]:
    found = re.findall(rf"^{name} (.*)$", DOCKERFILE, re.MULTILINE)
    return [" ".join(x.split()) for x in found]


def copied() -> set[str]:
    """Return what the build stage takes from the repository."""
    return {y for x in lines("COPY") if not x.startswith("--from") for y in x.split()[:-1]}


def test_everything_that_is_copied_is_there_and_let_through() -> None:
    let_through = {
        x[1:] for x in (ROOT / ".dockerignore").read_text().splitlines() if x[:1] == "!"
    }
    assert copied() == let_through
    assert [x for x in copied() if not (ROOT / x).exists()] == []


def test_the_build_has_all_that_the_wheel_is_made_of() -> None:
    # The package is links to the folders that stand beside it.
    folders = {x.name for x in (ROOT / "changefeed").iterdir() if x.is_symlink()}
    needed = {*WHEEL, *folders, "pyproject.toml", PROJECT["project"]["readme"], "LICENSE"}
    assert needed | {"requirements.txt"} == copied()


def test_no_shell_stands_between_signals_and_the_host_and_root_does_not_run_it() -> None:
    (entry,) = lines("ENTRYPOINT")
    assert json.loads(entry) == ["changefeed"]
    assert "changefeed" in PROJECT["project"]["scripts"]
    assert lines("USER") == ["10001"]


@pytest.mark.real_time
@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
async def test_the_health_check_asks_whether_the_host_lives(
    *, status: int, healthy: bool
) -> None:
    (command,) = re.findall(r"HEALTHCHECK .* CMD (\[.*\])$", DOCKERFILE, re.MULTILINE)
    program, *arguments = json.loads(command)
    assert program == "python"

    async def alive(_: web.Request) -> web.Response:
        return web.json_response({}, status=status)

    application = web.Application()
    application.add_routes([web.get("/livez", alive)])
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        assert await _exit_code(arguments, port) == (0 if healthy else 1)
    finally:
        await runner.cleanup()


async def _exit_code(arguments: list[str], port: int) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *arguments,
        env={**os.environ, "CHANGEFEED_WEB__PORT": str(port)},
        stderr=subprocess.DEVNULL,
    )
    return await process.wait()

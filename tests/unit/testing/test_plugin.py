"""The fixture in the pytest of somebody else, with and without plugins for async tests."""

import os
import sys
import time
from pathlib import Path

import pytest

from tests.support.processes import ended

ROOT = Path(__file__).parents[3]
STORY = """
import asyncio, time
import pytest

async def test_a_crash(changefeed_fleet):
    changefeed_fleet.start("anna")
    await changefeed_fleet.balanced()
    await asyncio.sleep(3600)
    assert await changefeed_fleet.loads() == {"anna": 4}

class TestOfAClass:
    @pytest.mark.changefeed_fleet(ranges=2)
    @pytest.mark.parametrize("name", ["ben", "carl"])
    async def test_with_a_name(self, changefeed_fleet, name):
        changefeed_fleet.start(name)
        await changefeed_fleet.balanced()
        assert await changefeed_fleet.loads() == {name: 2}

async def test_that_fails(changefeed_fleet):
    changefeed_fleet.start("anna")
    await changefeed_fleet.balanced()
    assert await changefeed_fleet.loads() == {"anna": 3}
"""


def ran(place: Path, *arguments: str, code: str = STORY) -> str:
    (place / "test_story.py").write_text(code)
    (place / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = (sys.executable, "-m", "pytest", "-p", "changefeed.testing.plugin", "-q")
    done = ended(*command, *arguments, cwd=place, env=env)
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    "plugins",
    [
        (),
        ("-p", "pytest_asyncio"),
        ("-p", "pytest_asyncio", "-o", "asyncio_mode=auto"),
        ("-p", "anyio.pytest_plugin"),
    ],
    ids=["alone", "asyncio", "asyncio-auto", "anyio"],
)
def test_async_stories_run_in_virtual_time_whatever_else_runs_async_tests(
    tmp_path: Path, plugins: tuple[str, ...]
) -> None:
    said = ran(tmp_path, *plugins)
    assert "1 failed, 3 passed" in said
    assert "assert {'anna': 4} == {'anna': 3}" in said


def test_tests_that_do_not_ask_for_it_import_nothing_of_ours(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "def test_nothing():\n"
        "    ours = {x for x in sys.modules if x.startswith('changefeed')}\n"
        "    assert ours == {'changefeed', 'changefeed.testing', 'changefeed.testing.plugin'}\n"
    )
    began = time.perf_counter()
    assert "1 passed" in ran(tmp_path, code=code)
    assert time.perf_counter() - began < 60


def test_the_sample_of_a_users_tests_passes(tmp_path: Path) -> None:
    code = (ROOT / "samples/embedding/tests/test_prices.py").read_text()
    assert "4 passed" in ran(tmp_path, code=code)

"""The emulator's wheel: it works alone, and ours works with it and without it."""

import zipfile
from pathlib import Path

import pytest

from cosmos_emulator import __version__
from tests.support import wheels
from tests.support.processes import ended
from tests.support.wheels import EMULATOR, run

SOURCES = EMULATOR / "src"
TEST = """
from urllib.request import urlopen

def test_an_account(cosmos_account):
    assert urlopen(cosmos_account.url + "_emulator").status == 200
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.ours(".whl", tmp_path_factory.mktemp("wheel"), "wheel", EMULATOR)


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with nothing of ours but the emulator."""
    return wheels.environment(tmp_path_factory.mktemp("environment"), wheel)


def test_it_has_every_file_of_the_emulator_and_no_other(wheel: Path) -> None:
    files = {x for x in SOURCES.rglob("*") if x.is_file() and x.suffix != ".pyc"}
    with zipfile.ZipFile(wheel) as opened:
        names = {x for x in opened.namelist() if ".dist-info/" not in x}
    assert names == {x.relative_to(SOURCES).as_posix() for x in files}
    assert "cosmos_emulator/py.typed" in names


def test_alone_it_has_a_command_and_gives_pytest_an_account(
    alone: Path, tmp_path: Path
) -> None:
    shown = run(alone / "bin/cosmos-emulator", "--version", cwd=tmp_path)
    assert shown == f"cosmos-emulator {__version__}\n"
    (tmp_path / "test_orders.py").write_text(TEST)
    # By the name of its entry point: those of the other environment are not there.
    pytest_with_it = ("-m", "pytest", "-p", "cosmos_emulator")
    bare = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    tried = run(alone / "bin/python", *pytest_with_it, cwd=tmp_path, **bare)
    assert "1 passed" in tried
    ours = ended(alone / "bin/python", "-c", "import changefeed", cwd=tmp_path, env={})
    assert "No module named 'changefeed'" in ours.stderr


def test_our_command_serves_with_it_and_says_what_is_missing_without_it(
    wheel: Path, tmp_path: Path
) -> None:
    home = tmp_path / "environment"
    wheels.environment(home, wheels.ours(".whl", tmp_path / "dist", "wheel"))
    command = home / "bin/changefeed"
    refused = ended(command, "emulator", "--port=0", cwd=tmp_path, env=wheels.alone())
    assert refused.returncode == 2
    assert "pip install 'changefeed-host[emulator]'" in refused.stderr
    run(command, "--help", cwd=tmp_path)
    wheels.install(home, wheel)
    shown = run(command, "emulator", "--version", cwd=tmp_path)
    assert shown == f"cosmos-emulator {__version__}\n"


def test_the_sdist_installs_the_same_files(alone: Path, tmp_path: Path) -> None:
    home = tmp_path / "environment"
    wheels.environment(home, wheels.ours(".tar.gz", tmp_path / "dist", "sdist", EMULATOR))
    ignored = {"direct_url.json", "RECORD"}  # say which file was installed
    found, wanted = (
        {y for y in wheels.files(x) if Path(y).name not in ignored} for x in (home, alone)
    )
    assert found == wanted

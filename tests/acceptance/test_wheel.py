"""The wheel: what is in it, and that it works where nothing else of ours is."""

import os
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGE = ROOT / "changefeed"


def run(*command: str | Path, cwd: Path) -> str:
    environment = {"PATH": os.environ["PATH"]}  # no PYTHONPATH: it must stand alone
    ended = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def built(source: Path, into: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", into, cwd=source)
    (wheel,) = into.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel, that borrows our dependencies only."""
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    installed(wheel, home)
    (packages,) = home.glob("lib/python*/site-packages")
    # Named in a .pth file, the other environment's own .pth files, which lead to the
    # sources, are not read.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return home


def installed(wheel: Path, home: Path) -> None:
    run(
        *(sys.executable, "-m", "pip", "--python", home / "bin/python", "install"),
        *("-q", "--disable-pip-version-check", "--no-index", "--no-deps", wheel),
        cwd=home,
    )


def sources() -> set[str]:
    """Return the files of our packages, as they lie in the repository."""
    found = {x for x in PACKAGE.iterdir() if x.is_file()}
    for folder in (x for x in PACKAGE.iterdir() if x.is_dir()):
        inside = (x for x in folder.resolve().rglob("*") if x.is_file())
        found |= {folder / x.relative_to(folder.resolve()) for x in inside}
    return {str(x.relative_to(ROOT)) for x in found if x.suffix != ".pyc"}


def test_it_has_every_file_of_our_packages_and_no_other(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = {x for x in opened.namelist() if ".dist-info/" not in x}
    assert names == sources()
    assert "changefeed/py.typed" in names


def test_a_fresh_environment_has_a_command_that_works(
    environment: Path, tmp_path: Path
) -> None:
    command = environment / "bin/changefeed"
    assert run(command, "--version", cwd=tmp_path) == (
        f"changefeed {PROJECT['project']['version']}\n"
    )
    where = run(
        *(environment / "bin/python", "-c", "import changefeed.host as x; print(x.__file__)"),
        cwd=tmp_path,
    )
    assert Path(where).is_relative_to(environment)
    run(command, "init-config", cwd=tmp_path)
    assert (tmp_path / "changefeed.toml").stat().st_size > 1000


def test_an_observer_of_another_package_is_found_by_its_entry_point(
    environment: Path, tmp_path: Path
) -> None:
    source = tmp_path / "shop"
    source.mkdir()
    for name in ("pyproject.toml", "shop_observers/__init__.py"):
        target = source / name
        target.parent.mkdir(exist_ok=True)
        target.write_text((ROOT / "samples/container" / name).read_text())
    installed(built(source, tmp_path / "dist"), environment)
    load = "from changefeed.observers.registry import load_observer as load"
    call = "load('shop', {'currency': 'USD'})"
    run(environment / "bin/python", "-c", f"{load}; {call}", cwd=tmp_path)

"""The wheel: what is in it, and that it works where nothing else of ours is."""

import zipfile
from pathlib import Path

import pytest

import changefeed
from tests.support import wheels
from tests.support.wheels import PACKAGE, ROOT, run

pytestmark = pytest.mark.real_time


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.ours(".whl", tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel."""
    home = tmp_path_factory.mktemp("environment")
    wheels.environment(home)
    wheels.install(home, wheel)
    return home


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
    assert run(command, "--version", cwd=tmp_path) == (f"changefeed {changefeed.__version__}\n")
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
    wheels.install(environment, wheels.build(source, tmp_path / "dist"))
    load = "from changefeed.observers.registry import load_observer as load"
    call = "load('shop', {'currency': 'USD'})"
    run(environment / "bin/python", "-c", f"{load}; {call}", cwd=tmp_path)

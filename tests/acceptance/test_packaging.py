"""The wheel and the sdist: what is in them, and that both work beside names like ours."""

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path
from textwrap import dedent

import deltalake
import pytest

import changefeed
from changefeed.pipeline.java import java_home
from changefeed.runtime.errors import UserError
from tests.support import typed_program, wheels
from tests.support.pipeline_feeds import a_log
from tests.support.processes import ended
from tests.support.wheels import PACKAGE, ROOT, run

FOLDERS = sorted(x.name for x in (ROOT / "changefeed").iterdir() if x.is_symlink())
NAMESAKES = ("observers", "pipeline")
PYRIGHT = ROOT / ".venv/pyright/node_modules/.bin/pyright"
IMPORT_ALL = """
import importlib, pkgutil, sys
import changefeed
for module in pkgutil.walk_packages(changefeed.__path__, "changefeed."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
print(sorted({x.partition(".")[0] for x in sys.modules}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.ours(".whl", tmp_path_factory.mktemp("wheel"), "wheel")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return wheels.ours(".tar.gz", tmp_path_factory.mktemp("sdist"), "sdist")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh virtual environment with the wheel."""
    return wheels.environment(tmp_path_factory.mktemp("environment"), wheel)


@pytest.fixture(scope="module")
def namesakes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The packages of the package index that have the names of our folders."""
    into = tmp_path_factory.mktemp("namesakes")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "-q")
    done = ended(*pip, "--no-deps", "-w", into, *NAMESAKES, cwd=into)
    if done.returncode:
        pytest.skip(f"the package index cannot be reached: {done.stderr.strip()[-300:]}")
    return sorted(into.iterdir())


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
    run(command, "config", "host", cwd=tmp_path)
    assert (tmp_path / "changefeed.toml").stat().st_size > 1000


def test_an_observer_of_another_package_is_found_by_its_entry_point(
    wheel: Path, tmp_path: Path
) -> None:
    home = wheels.environment(tmp_path / "environment")
    source = tmp_path / "shop"
    source.mkdir()
    for name in ("pyproject.toml", "shop_observers/__init__.py"):
        target = source / name
        target.parent.mkdir(exist_ok=True)
        target.write_text((ROOT / "samples/container" / name).read_text())
    wheels.install(home, wheel, wheels.build(source, tmp_path / "dist"))
    load = "from changefeed.observers.registry import load_observer as load"
    call = "load('shop', {'currency': 'USD'})"
    run(home / "bin/python", "-c", f"{load}; {call}", cwd=tmp_path)


def top_level_names(python: Path, cwd: Path) -> list[str]:
    """Import all our modules; return the top-level names of all that are imported then."""
    names: list[str] = json.loads(
        run(python, "-c", IMPORT_ALL, cwd=cwd).splitlines()[-1].replace("'", '"')
    )
    return names


def works(home: Path, cwd: Path) -> None:
    command = home / "bin/changefeed"
    assert run(command, "--version", cwd=cwd).startswith("changefeed ")
    run(command, "config", "host", "-", cwd=cwd)
    run(command, "pipeline", "status", "--help", cwd=cwd)
    assert "changefeed" in top_level_names(home / "bin/python", cwd)


def test_importing_all_of_it_takes_no_other_name_than_its_own(
    environment: Path, tmp_path: Path
) -> None:
    names = top_level_names(environment / "bin/python", tmp_path)
    assert "changefeed" in names
    assert sorted(set(names) & set(FOLDERS)) == []


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_packages_of_the_same_names_as_our_folders_can_come_and_go(
    first: str, wheel: Path, namesakes: list[Path], tmp_path: Path
) -> None:
    home = tmp_path / "environment"
    wheels.environment(home)
    bare = wheels.files(home)
    steps = [[wheel], namesakes] if first == "ours" else [namesakes, [wheel]]
    wheels.install(home, *steps[0])
    alone = wheels.files(home)
    wheels.install(home, *steps[1])
    both = wheels.files(home)
    works(home, tmp_path)
    assert {x.partition("/")[0] for x in both} > set(NAMESAKES)

    last = ["changefeed-host"] if first == "theirs" else list(NAMESAKES)
    wheels.uninstall(home, *last)
    assert wheels.files(home) == alone, "what was there before is there again, and whole"
    if first == "ours":
        works(home, tmp_path)
        wheels.uninstall(home, "changefeed-host")
    else:
        run(home / "bin/python", "-c", "import pipeline.pipeline", cwd=tmp_path)
        wheels.uninstall(home, *NAMESAKES)
    assert wheels.files(home) == bare


def test_the_sdist_installs_the_same_files_as_the_wheel(
    environment: Path, sdist: Path, tmp_path: Path
) -> None:
    home = tmp_path / "environment"
    wheels.environment(home, sdist)
    works(home, tmp_path)
    ignored = {"direct_url.json", "RECORD"}  # say which file was installed
    found = {x for x in wheels.files(home) if Path(x).name not in ignored}
    assert found == {x for x in wheels.files(environment) if Path(x).name not in ignored}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project, whose folders have the names of ours."""
    home = tmp_path / "shop"
    for folder in ("process", "pipeline", "host", "observers"):
        (home / folder).mkdir(parents=True)
        (home / folder / "__init__.py").write_text(f"OWNER = 'shop, {folder}'\n")
    (home / "observers/orders.py").write_text(OBSERVER)
    (home / "embed.py").write_text(EMBED)
    a_log(home / "log", {f"k{n}": 10 for n in range(5)}, parts=2)
    return home


OBSERVER = dedent(
    '''
    from collections.abc import Sequence
    from pathlib import Path

    import host
    import pipeline
    import process
    from changefeed import Change, CloseReason, Context


    class Orders:
        """Writes the keys it gets into a file."""

        def __init__(self, *, path: str = "seen") -> None:
            assert host.OWNER == "shop, host", host
            assert pipeline.OWNER == "shop, pipeline", pipeline
            assert process.OWNER == "shop, process", process
            self._path = path

        def process(self, context: Context, changes: Sequence[Change]) -> None:
            with Path(self._path).open("a") as out:
                out.writelines(f"{x.key}\\n" for x in changes)

        def close(self, context: Context, reason: CloseReason) -> None:
            pass
    '''
).lstrip()
EMBED = dedent(
    """
    import asyncio
    from functools import partial
    from pathlib import Path

    from changefeed import FeedSettings, LeaseSettings, Settings, open_host

    import process
    from observers.orders import Orders


    def lines() -> int:
        seen = Path("embedded")
        return len(seen.read_text().splitlines()) if seen.exists() else 0


    async def main() -> None:
        settings = Settings(
            feed=FeedSettings(address="eventlog:log"),
            leases=LeaseSettings(address="sqlite:embedded.db"),
        )
        async with open_host(settings, partial(Orders, path="embedded")) as running:
            task = asyncio.create_task(running.run())
            async with asyncio.timeout(30):
                while lines() < 50:
                    await asyncio.sleep(0.05)
            running.stop()
            await task
        print(process.OWNER)


    if __name__ == "__main__":
        asyncio.run(main())
    """
).lstrip()


def test_a_project_with_folders_of_our_names_embeds_a_host(
    environment: Path, project: Path
) -> None:
    assert run(environment / "bin/python", "embed.py", cwd=project).endswith("shop, process\n")
    seen = (project / "embedded").read_text().split()
    assert sorted(set(seen)) == [f"k{n}" for n in range(5)]


def java() -> dict[str, str]:
    try:
        home = java_home(os.environ)
    except UserError as error:
        pytest.skip(str(error))
    return {} if home is None else {"JAVA_HOME": home}


def test_a_project_with_folders_of_our_names_runs_the_pipeline_and_its_executors(
    environment: Path, project: Path
) -> None:
    command = environment / "bin/changefeed"
    places = ("--feed=eventlog:log", "--directory=tables")
    tables = ("--set=latest.enabled=false", *places)
    observer = "--observer=observers.orders:Orders"
    run(command, "pipeline", "run", "--once", observer, *tables, cwd=project, **java())
    assert rows(project) == 50
    assert len((project / "seen").read_text().split()) == 50


def rows(project: Path) -> int:
    count: int = deltalake.DeltaTable(str(project / "tables/changes")).count()
    return count


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_users_programs_have_types(environment: Path, project: Path, checker: str) -> None:
    shutil.copy(typed_program.__file__, project)
    (project / "wrong.py").write_text(
        "from changefeed import Change\n"
        "from typed_program import Struct\n"
        "def see(change: Change[Struct]) -> None:\n"
        "    print(change.value().euros)\n"
    )
    python = environment / "bin/python"
    commands = {
        "mypy": (sys.executable, "-m", "mypy", "--strict", f"--python-executable={python}"),
        "pyright": (PYRIGHT, f"--pythonpath={python}"),
    }
    if checker == "pyright" and not PYRIGHT.exists():
        pytest.skip("pyright is not there: npm install --prefix .venv/pyright pyright")
    files = ("observers/orders.py", "embed.py", "typed_program.py", "wrong.py")
    done = ended(*commands[checker], *files, cwd=project, env=wheels.alone())
    errors = [x for x in done.stdout.splitlines() if "error:" in x]
    assert len(errors) == 1, done.stdout + done.stderr
    assert "wrong.py:4" in errors[0]
    assert "euros" in errors[0]

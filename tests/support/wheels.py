"""The project as ``pip install`` has it: built, and installed where no checkout is."""

import os
import sys
import sysconfig
from pathlib import Path

from tests.support.processes import PATIENCE, ended

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "changefeed"
EMULATOR = ROOT / "emulator"
DEPENDENCIES = sysconfig.get_path("purelib")
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-q")


def alone() -> dict[str, str]:
    """Return an environment without what leads to the sources."""
    return {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


def run(*command: str | Path, cwd: Path, **environ: str) -> str:
    """Run a command without our PYTHONPATH. Return what it printed."""
    done = ended(*command, cwd=cwd, env={**alone(), **environ}, patience=2 * PATIENCE)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


def ours(suffix: str, into: Path, kind: str, source: Path = ROOT) -> Path:
    """Return our wheel or sdist, or the emulator's if ``source`` is ``EMULATOR``.

    It is that of the folder TEST_DIST if that is set, else built.
    """
    given = os.environ.get("TEST_DIST")
    if given is None:
        return build(source, into, kind)
    name = "cosmos_emulator" if source == EMULATOR else "changefeed_host"
    (found,) = Path(given).glob(f"{name}-*{suffix}")
    return found


def build(source: Path, into: Path, kind: str = "wheel") -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", into, cwd=source)
    (made,) = into.iterdir()
    return made


def environment(home: Path, *what: Path) -> Path:
    """Make a virtual environment of our dependencies and ``what``; return its home."""
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home.parent)
    # Named in a .pth file, the other environment's own .pth files, which lead to the
    # sources, are not read.
    (packages(home) / "dependencies.pth").write_text(DEPENDENCIES)
    if what:
        install(home, *what)
    return home


def packages(home: Path) -> Path:
    (found,) = home.glob("lib/python*/site-packages")
    return found


def install(home: Path, *what: str | Path) -> None:
    run(
        *(*_PIP, "--python", home / "bin/python", "install"),
        *("--no-index", "--no-deps", "--no-build-isolation", *what),
        cwd=home,
    )


def uninstall(home: Path, *names: str) -> None:
    run(*_PIP, "--python", home / "bin/python", "uninstall", "-y", *names, cwd=home)


def files(home: Path) -> set[str]:
    """Return what is installed, but for what Python and pip write beside it."""
    found = (x for x in packages(home).rglob("*") if x.is_file() and x.suffix != ".pyc")
    return {str(x.relative_to(packages(home))) for x in found}

"""The image without an engine: the lines of the Dockerfile, run in a folder instead of ``/``.

``python -m tests.support.image FOLDER`` makes one. It needs what a build needs: the registry
of Python packages.
"""

import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import ended

ROOT = Path(__file__).parents[2]
_INSTRUCTION = re.compile(r"^([A-Z]+) (.*)$", re.MULTILINE)
_PLACES = ("/opt/", "/src", "/dist", "/data", "/usr/local/")


@dataclass(frozen=True, slots=True)
class Line:
    """``stage`` counts from 0."""

    stage: int
    instruction: str
    text: str


def dockerfile() -> list[Line]:
    """Return the lines of the Dockerfile, those that go on on the next one as one."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines, stage = [], -1
    for instruction, rest in _INSTRUCTION.findall(text):
        stage += instruction == "FROM"
        lines.append(Line(stage, instruction, " ".join(rest.split())))
    return lines


def run_lines(stage: int) -> list[str]:
    return [x.text for x in dockerfile() if (x.stage, x.instruction) == (stage, "RUN")]


def moved(command: str, root: Path) -> str:
    """Return a command that works in ``root`` as the line does in ``/``."""
    places = "|".join(map(re.escape, _PLACES))
    return re.sub(rf"(?<![\w.])({places})", lambda x: f"{root}{x[1]}", command)


def run(command: str, root: Path, cwd: Path) -> None:
    """Run a line as Docker does, with a shell."""
    env = {**_environment(), "UV_PYTHON": sys.executable}
    done = ended("/bin/sh", "-c", moved(command, root), cwd=cwd, env=env, patience=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def build(root: Path) -> Path:
    """Make ``/opt/changefeed`` of the image below ``root``, and return it.

    uv is the one that is here: its line installs the version that is pinned, which this is.
    """
    source = root / "src"
    source.mkdir(parents=True)
    (root / "opt").mkdir()
    for line in dockerfile():
        if (line.stage, line.instruction) == (0, "COPY"):
            *names, into = line.text.split()
            for name in names:
                _copy(ROOT / name, source / into / name if into == "./" else source / into)
    _, make = run_lines(0)
    run(make, root, source)
    return root / "opt/changefeed"


def size(folder: Path) -> int:
    """Return the bytes of all files below."""
    return sum(x.lstat().st_size for x in folder.rglob("*") if not x.is_dir())


def _copy(place: Path, into: Path) -> None:
    if place.is_dir():
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(place, into, symlinks=True, ignore=ignored)
    else:
        shutil.copy(place, into)


def _environment() -> dict[str, str]:
    tools = str(Path(sys.executable).parent)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return {**kept, "PATH": f"{tools}:{os.environ['PATH']}"}


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    made = build(folder)
    print(f"{made}: {size(made) / 1e6:.0f} MB")  # noqa: T201

"""Applies mutants to copies of the tree, and lets tests look at them.

Each worker has a copy of its own, so the tree itself is never broken. Bytecode is written
while the unbroken copy is tested, and only read from then on: Python tells stale bytecode
by time and size, and a mutant of the same size within a second would go unnoticed.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from .mutant import ROOT, Mutant

_TREE = (
    "pyproject.toml",
    "brokers",
    "changefeed",
    "cli",
    "emulator",
    "feeds",
    "host",
    "leases",
    "observers",
    "pipeline",
    "runtime",
    "tests",
)
_PYTEST = ("-m", "pytest", "-q", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0")
_PATIENCE = 60.0
_AZURITE = ROOT / ".venv/azurite/node_modules/.bin/azurite-blob"
_FAILED = 1  # the exit code of pytest when a test did


class NotFit(Exception):
    """The tests fail on the unbroken code already, so they cannot show anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What became of a mutant. ``killer`` is the test that noticed it; ``None`` if none did."""

    mutant: Mutant
    killer: str | None
    seconds: float


def verdicts(mutants: Sequence[Mutant], folder: Path, jobs: int) -> Iterator[Verdict]:
    """Yield what becomes of each mutant, as it turns out.

    Raise ``Stale`` for a mutant whose code has changed and ``NotFit`` if the unbroken copy
    fails, before anything is broken.
    """
    for mutant in mutants:
        mutant.broken((ROOT / mutant.file).read_text())
    copies: SimpleQueue[Path] = SimpleQueue()
    first = _copied(ROOT, folder / "copy-0")
    _see_it_hold(first, mutants, jobs)
    for n in range(1, jobs):
        copies.put(Path(shutil.copytree(first, folder / f"copy-{n}", symlinks=True)))
    copies.put(first)
    with ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(_judged, mutant, copies) for mutant in mutants]
        try:
            for future in as_completed(futures):
                yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _copied(root: Path, to: Path) -> Path:
    to.mkdir()
    for name in _TREE:
        if (root / name).is_dir():
            leave_out = shutil.ignore_patterns("__pycache__")
            shutil.copytree(root / name, to / name, ignore=leave_out, symlinks=True)
        else:
            shutil.copy2(root / name, to / name)
    return to


def _see_it_hold(copy: Path, mutants: Sequence[Mutant], jobs: int) -> None:
    """Run every test that any mutant needs on the unbroken copy."""
    seen = _python(copy, "-c", "import changefeed.host as x; print(x.__file__)")
    if not seen.stdout.startswith(str(copy)):
        raise NotFit(f"the tests would not run against the copy, but {seen.stdout or seen}")
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    ended = _python(copy, *_PYTEST, "-rfE", f"--numprocesses={jobs}", *tests, write=True)
    if ended.returncode:
        raise NotFit(f"the unbroken code fails its tests:\n{ended.stdout}{ended.stderr}")


def _judged(mutant: Mutant, copies: "SimpleQueue[Path]") -> Verdict:
    copy = copies.get()
    path = copy / mutant.file
    whole, times = path.read_bytes(), path.stat()
    began = time.monotonic()
    try:
        mutant.apply(copy)
        killer = _killer(mutant, copy)
    finally:
        path.write_bytes(whole)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        copies.put(copy)
    return Verdict(mutant=mutant, killer=killer, seconds=time.monotonic() - began)


def _killer(mutant: Mutant, copy: Path) -> str | None:
    try:
        ended = _python(copy, *_PYTEST, "-x", "-rfE", *mutant.tests)
    except subprocess.TimeoutExpired:
        return f"no end within {_PATIENCE:g} s"
    if ended.returncode == 0:
        return None
    if ended.returncode != _FAILED:
        raise NotFit(f"mutant {mutant.name!r} breaks too much:\n{ended.stdout[-3000:]}")
    failed = re.search(
        r"^(?:FAILED|ERROR) (?:.*?::)?(.+?)(?: - |$)", ended.stdout, re.MULTILINE
    )
    return failed[1] if failed else "a test"


def _python(
    copy: Path, *arguments: str, write: bool = False
) -> "subprocess.CompletedProcess[str]":
    """Run Python in ``copy``, whose modules come before the installed ones."""
    ours = {"PYTHONPATH": str(copy), "PYTHONHASHSEED": "0"}
    if _AZURITE.exists():  # the copies have none
        ours["CHANGEFEED_TEST_AZURITE"] = str(_AZURITE)
    if not write:
        ours["PYTHONDONTWRITEBYTECODE"] = "1"
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=copy,
        env={**os.environ, **ours},
        capture_output=True,
        text=True,
        timeout=None if write else _PATIENCE,
        check=False,
    )

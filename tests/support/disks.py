"""File systems of their own for tests: of a size, or full."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk_at(place: Path, size: str) -> Iterator[Path]:
    """Have a file system of a size, as ``mount`` writes it, at ``place``, which may be there.

    Skip the test where nothing can be mounted.
    """
    place.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Leave no room on a disk; return what takes it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        room = os.statvfs(disk)
        file.write(bytes(room.f_bavail * room.f_frsize))
    return ballast

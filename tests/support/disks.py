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
    with _mounted(place, "-t", "tmpfs", "-o", f"size={size}", "none"):
        yield place


@contextmanager
def ext4_at(place: Path) -> Iterator[Path]:
    """Have a file system with a journal, on a loop device, or skip the test."""
    image = place.with_suffix(".ext4")
    with image.open("wb") as file:
        file.truncate(400_000_000)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("no file system can be made here")
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    with _mounted(place, "-o", "loop", str(image)):
        yield place


@contextmanager
def _mounted(place: Path, *what: str) -> Iterator[None]:
    place.mkdir(exist_ok=True)
    mount = ["mount", *what, str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(place)], check=True)


def fill(disk: Path) -> Path:
    """Leave no room on a disk; return what takes it."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        room = os.statvfs(disk)
        file.write(bytes(room.f_bavail * room.f_frsize))
    return ballast

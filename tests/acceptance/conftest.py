"""Where the processes of one test have their files."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy of the folder that ``made`` makes once for all tests of a file."""
    return Path(shutil.copytree(made, tmp_path / "place"))

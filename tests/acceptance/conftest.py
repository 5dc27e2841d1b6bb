"""Where the processes of one test have their files, and the browser of those of the page."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import running_chromium


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Path:
    """A copy of the folder that ``made`` makes once for all tests of a file."""
    return Path(shutil.copytree(made, tmp_path / "place"))


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_chromium(tmp_path_factory.mktemp("chromium")) as address:
        yield address

"""Files that hold changes, or letters: nobody but their user reads them."""

import os
from pathlib import Path
from typing import Final

PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700


def make_private(path: Path | str) -> None:
    """Make an empty file for this user alone, if there is none.

    A file that is there keeps its rights: its maker decided who reads it.
    """
    flags = os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC
    os.close(os.open(path, flags, PRIVATE_FILE))

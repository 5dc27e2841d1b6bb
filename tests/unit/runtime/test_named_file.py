"""Files that people name may be anything: reading them has an end, and says what is wrong."""

import os
import threading
from pathlib import Path

import pytest

from changefeed.runtime.named_file import read_file, write_into

pytestmark = pytest.mark.real_time

MAX_BYTES = 100_000


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    made = tmp_path / "pipe"
    os.mkfifo(made)
    return made


def test_what_cannot_be_read_says_why(tmp_path: Path, pipe: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * (MAX_BYTES + 1))
    wrong = {
        "": "directory",
        "large": "too large",
        "none": "No such file",
        str(pipe): "nobody writes into it",
        "/dev/zero": "too large",
    }
    for name, says in wrong.items():
        with pytest.raises(OSError, match=says):
            read_file(tmp_path / name, most=MAX_BYTES)


def test_a_pipe_is_read_to_its_end_and_written_into(pipe: Path) -> None:
    """So is ``<(command)`` of a shell: open for writing, and with nothing in it yet."""
    document = b"x" * MAX_BYTES
    keeps_it_open = os.open(pipe, os.O_RDWR)
    writer = threading.Thread(target=write_into, args=(pipe, document))
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(read_file(pipe, most=MAX_BYTES)))
    reader.start()
    writer.start()
    writer.join(10)
    os.close(keeps_it_open)
    reader.join(10)
    assert found == [document]


def test_a_pipe_that_nobody_reads_is_not_waited_for(pipe: Path) -> None:
    with pytest.raises(OSError, match="nobody reads from it"):
        write_into(pipe, b"x")

"""Files of positions, as commands read them: whole, and so no larger than memory has room."""

from pathlib import Path
from typing import BinaryIO

from changefeed.cli.io.standard_input import open_standard_input
from changefeed.leases.position_file import Positions, read_document
from changefeed.runtime.errors import UserError

_MOST = 256 * 2**20
"""In bytes: a million leases take less."""


def read_positions(file: str) -> Positions:
    """Read a file, or standard input for ``-``. Raise ``UserError`` for what is none."""
    try:
        if file == "-":
            document = _read(open_standard_input().buffer)
        else:
            with Path(file).open("rb") as opened:
                document = _read(opened)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    if len(document) > _MOST:
        raise UserError(f"{file} has more than {_MOST >> 20} MiB: it is no file of positions")
    return read_document(document)


def _read(opened: BinaryIO) -> bytes:
    return opened.read(_MOST + 1)

"""Files of positions, as commands read them: whole, and so no larger than memory has room."""

from pathlib import Path

from changefeed.cli.io.standard_input import open_standard_input
from changefeed.leases.position_file import Positions, read_document
from changefeed.runtime.errors import UserError
from changefeed.runtime.named_file import read_file, read_stream

_MAX_BYTES = 256 * 2**20
"""In bytes: a million leases take less."""


def read_positions(file: str) -> Positions:
    """Read a file, or standard input for ``-``. Raise ``UserError`` for what is none."""
    try:
        if file == "-":
            document = read_stream(open_standard_input().buffer, file, most=_MAX_BYTES)
        else:
            document = read_file(Path(file), most=_MAX_BYTES)
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}") from error
    return read_document(document)

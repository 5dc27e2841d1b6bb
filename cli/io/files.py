"""Files that commands write: each whole, or not at all."""

import os
from pathlib import Path

from changefeed.cli.io.report import write_document
from changefeed.runtime.errors import UserError
from changefeed.runtime.named_file import is_there, write_into


def write_out(file: str, document: bytes) -> bool:
    """Write to standard output for ``-``, else into a file; return whether it was a file."""
    if file == "-":
        write_document(document)
        return False
    write_file(Path(file), document)
    return True


def write_file(file: Path, document: bytes) -> None:
    """Replace a file at once or not at all; write into what is none, a device or a pipe."""
    try:
        if is_there(file) and not file.is_file():
            write_into(file, document)
        else:
            _replace_file(file.resolve(), document)
    except (OSError, ValueError, RuntimeError) as error:  # "/" and the like; links in a circle
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{str(file)!r} cannot be written: {reason}") from error


def _replace_file(file: Path, document: bytes) -> None:
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as writing:
            writing.write(document)
            writing.flush()
            os.fsync(writing.fileno())
        fresh.replace(file)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise

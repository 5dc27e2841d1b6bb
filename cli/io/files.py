"""Files that commands write: each whole, or not at all."""

import os
from pathlib import Path

from changefeed.cli.io.report import write_document
from changefeed.runtime.errors import Failure, UserError
from changefeed.runtime.file_errors import why_it_may_pass
from changefeed.runtime.named_file import is_there, write_into


def write_out(file: str, document: bytes) -> bool:
    """Write to standard output for ``-``, else into a file; return whether it was a file."""
    if file == "-":
        write_document(document)
        return False
    write_file(Path(file), document)
    return True


def write_file(file: Path, document: bytes) -> None:
    """Make a file at once or not at all; write into what is none, a device or a pipe.

    Raise ``UserError`` if the file is there already: what it holds may have no copy. Raise
    ``Failure`` where the disk is full, and the like.
    """
    try:
        if not is_there(file):
            _make_file(file.resolve(), document)
        elif file.is_file():
            raise UserError(f"{file} is there already: delete it first, or name another file")
        else:
            write_into(file, document)
    except (OSError, ValueError, RuntimeError) as error:  # "/" and the like; links in a circle
        reason = error.strerror if isinstance(error, OSError) else error
        text = f"{str(file)!r} cannot be written: {reason}"
        passes = why_it_may_pass(error) if isinstance(error, OSError) else None
        raise UserError(text) if passes is None else Failure(f"{text}; {passes}") from error


def _make_file(file: Path, document: bytes) -> None:
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as writing:
            writing.write(document)
            writing.flush()
            os.fsync(writing.fileno())
        fresh.rename(file)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise

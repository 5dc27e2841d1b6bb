"""Writing a file of settings, as ``init-config`` does."""

from pathlib import Path

import typer

from changefeed.runtime.errors import UserError


def write_config(file: Path, text: str, *, force: bool) -> None:
    """Write the file and say so. Raise ``UserError`` if it is there already, unless forced."""
    try:
        with file.open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise UserError(f"{file} is there already; --force overwrites it") from None
    except OSError as error:
        raise UserError(f"{file} cannot be written: {error.strerror}") from error
    typer.echo(f"wrote {file}")

"""Secrets in files, as Kubernetes and Docker mount them."""

from pathlib import Path

from changefeed.runtime.errors import UserError


def read_secret(file: Path) -> str:
    """Return the secret in a file, without what surrounds it.

    Raise ``UserError`` if there is none, or ``file`` is no regular file: a pipe would be
    waited for, and gives what it holds only once.
    """
    try:
        secret = file.read_text("utf-8").strip() if file.is_file() else None
        if secret is None:
            file.stat()  # says why, where there is none
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"the secret in {file} cannot be read: {error}") from error
    if secret is None:
        raise UserError(f"{file} is no regular file, so no secret can be read from it")
    if not secret:
        raise UserError(f"{file} is empty, and should hold a secret")
    return secret

"""Secrets: keys, tokens and passwords, as text or in files, as Kubernetes mounts them.

Keys are renewed while hosts run: the file gets a new one, and the old one ends. So a client
keeps no text, but the ``Secret``, and asks it at each use, or at each connection where those
last. A refusal is asked again for a while (``runtime.calls``), and by then with what the
file has.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from changefeed.runtime.errors import UserError
from changefeed.runtime.paths import absolute

T = TypeVar("T")


class FileValue(Generic[T]):
    """What files hold by now.

    ``read`` returns it, and raises ``UserError`` or ``ValueError``, with a text that repeats no
    secret, where there is nothing usable.
    """

    __slots__ = ("_last", "_missed", "_read")

    def __init__(self, read: Callable[[], T]) -> None:
        self._read = read
        self._last = read()
        self._missed = False

    def current(self) -> T:
        """Return what the files hold; while that is nothing usable, what they held before."""
        try:
            self._last = self._read()
        except (UserError, ValueError) as error:
            if not self._missed:
                _warn(error)
            self._missed = True
        else:
            self._missed = False
        return self._last


def _warn(error: Exception) -> None:
    # Here, since it takes long to import, and most processes of Spark log nothing.
    from changefeed.runtime.logs import get_logger  # noqa: PLC0415

    get_logger().warning(
        "process.warning",
        what="a secret is unreadable",
        reason=str(error),
        advice="the last one is used on",
    )


class Secret(FileValue[str]):
    """A text that opens something, as it is by now."""

    __slots__ = ()

    @classmethod
    def of(cls, text: str) -> "Secret":
        return cls(lambda: text)

    @classmethod
    def in_file(cls, file: Path) -> "Secret":
        """Raise ``UserError`` if the file cannot be read now."""
        place = absolute(file)
        return cls(lambda: read_secret(place))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self.current() == other.current()

    __hash__ = None  # type: ignore[assignment] # it changes

    def within(self, take: Callable[[str], str]) -> "Secret":
        """Return a part of this one, as the key in a connection string. ``take`` finds it."""
        return Secret(lambda: take(self.current()))


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
        raise UserError(f"{file} is not a regular file, so no secret can be read from it")
    if not secret:
        raise UserError(f"{file} is empty, and should hold a secret")
    return secret

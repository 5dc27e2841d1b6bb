"""Secrets: keys, tokens and passwords, in the settings or in files, as Kubernetes mounts them.

Keys are renewed while hosts run: the file gets a new one, and the old one ends. So a client
keeps no text, but the ``Secret``, and asks it at each use, or at each connection where those
last. A refusal is asked again for a while (``runtime.patience``), and by then with what the
file has.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Generic, Self, TypeVar

from pydantic import (
    BaseModel,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import get_logger
from changefeed.runtime.paths import absolute
from changefeed.runtime.settings_schema import IN_FILE, is_secret

T = TypeVar("T")

_log = get_logger()


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
                _log.warning(
                    "process.warning",
                    what="a secret is unreadable",
                    reason=str(error),
                    advice="the last one is used on",
                )
            self._missed = True
        else:
            self._missed = False
        return self._last


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


class HasSecrets(BaseModel):
    """Settings with secrets: each is ``NAME``, or in the file that ``NAME_file`` names."""

    _files: dict[str, Path] = PrivateAttr(default_factory=dict)

    @field_validator("*")
    @classmethod
    def _find_files_from_anywhere(cls, given: object) -> object:
        """Files are read again while the process runs, from wherever it is by then."""
        return absolute(given) if isinstance(given, Path) else given

    @model_validator(mode="wrap")
    @classmethod
    def _take_files(cls, given: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(given, Mapping):
            return handler(given)
        values, files = dict(given), {}
        for name, field in cls.model_fields.items():
            in_file = f"{name}{IN_FILE}"
            if not is_secret(field.annotation) or values.get(in_file) is None:
                continue
            file = values.pop(in_file)
            if values.get(name) is not None:
                raise ValueError(f"set {name} or {in_file}, not both")
            if not isinstance(file, str | Path):
                raise ValueError(f"{in_file} should be the path of a file")  # noqa: TRY004
            files[name] = absolute(Path(file))
        made = handler(values)
        made._files = files  # noqa: SLF001 - of this class
        return made

    def secret_of(self, name: str) -> Secret | None:
        """Return the secret of this name, if it is set. Raise ``UserError`` for its file."""
        if (file := self.file_of(name)) is not None:
            return Secret.in_file(file)
        given: SecretStr | None = getattr(self, name)
        text = given.get_secret_value() if given is not None else ""
        return Secret.of(text) if text else None

    def file_of(self, name: str) -> Path | None:
        """Return the file that holds the secret of this name, if one is named."""
        return self._files.get(name)


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

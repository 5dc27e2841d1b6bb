"""Secrets among settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Self

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from changefeed.runtime.paths import absolute
from changefeed.runtime.secret import Secret
from changefeed.runtime.settings_schema import IN_FILE, is_secret


class HasSecrets(BaseModel):
    """Settings with secrets: each is ``NAME``, or in the file that ``NAME_file`` names."""

    # A password that is a number in a file of settings is meant as a text.
    model_config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)

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

"""Settings from all sources: what the host's and the pipeline's have in common.

A value is taken from the first place that has it: the command line, the environment, the
TOML file, the default. Settings are plain values: only ``read_settings`` looks anywhere.
"""

import logging
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from changefeed.runtime.errors import UserError
from changefeed.runtime.named_file import read_file
from changefeed.runtime.paths import absolute_address
from changefeed.runtime.quantities import seconds, size
from changefeed.runtime.settings_errors import (
    Sources,
    misspelled_variables,
    not_json,
    unknown_variables,
    wrong_settings,
)

MAX_NUMBER = 10**9
"""No number of a setting is larger: some of those who get it have 32 bits for it."""

_MAX_BYTES = 2**20
"""No file of settings is larger."""

_OF_OTHERS = ("broker",)
"""Sections in the environment that are of other processes than the one that looks."""

SecondsOrZero = Annotated[
    float,
    Field(ge=0, le=MAX_NUMBER, allow_inf_nan=False),
    BeforeValidator(lambda given: seconds(given) if isinstance(given, str) else given),
]
"""A number of seconds, or text with a unit, such as ``2h``."""

Seconds = Annotated[SecondsOrZero, Field(gt=0)]
"""As ``SecondsOrZero``, but for 0."""

Bytes = Annotated[
    int, BeforeValidator(lambda given: size(given) if isinstance(given, str) else given)
]
"""A number of bytes, or text with a unit, such as ``64MiB``."""

Place = Annotated[str, AfterValidator(absolute_address)]
"""An address. It is written out when it is read: an observer may change the directory."""

_log = logging.getLogger("changefeed")


class Section(BaseModel):
    """A section, or all of them."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, validate_default=True
    )

    @field_validator("*", mode="before")
    @classmethod
    def _take_no_truth_for_a_number(cls, given: object, of: ValidationInfo) -> object:
        """Refuse ``true``, which would be 1, where a setting is a number."""
        kind = cls.model_fields[of.field_name or ""].annotation
        if isinstance(given, bool) and any(x in (int, float) for x in _within(kind)):
            raise ValueError("should be a number")
        return given


def _within(annotation: Any) -> Iterator[Any]:
    """Yield a type, and those that it is made of."""
    yield annotation
    for x in get_args(annotation):
        yield from _within(x)


class LogSettings(Section):
    """Structured logs on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
    """``auto``: for people on a terminal, JSON elsewhere."""


class AllSettings(Section):
    """All settings of a process."""

    prefix: ClassVar[str]
    """What the names of its variables in the environment begin with."""
    init_command: ClassVar[str]
    """The command that writes a file with all of them."""
    foreign_sections: ClassVar[tuple[str, ...]] = ()
    """Sections in the environment that are another process's."""
    former: ClassVar[Mapping[str, str]] = {}
    """Names that people may know and that nobody sets any more: what takes their place."""


SettingsT = TypeVar("SettingsT", bound=AllSettings)


def read_settings(
    model: type[SettingsT], file: Path | None, flags: Mapping[str, Any]
) -> SettingsT:
    """Merge a TOML file, the environment and nested ``flags`` into settings.

    Raise ``UserError``, which names each setting that is wrong, with the place it is from.
    """
    found_in_file = {} if file is None else _read(file, model.init_command)
    foreign = (*model.foreign_sections, *_OF_OTHERS)
    if unknown := unknown_variables(model, os.environ, model.prefix, foreign):
        raise UserError("; ".join(unknown))
    for text in misspelled_variables(model, os.environ, model.prefix):
        _log.warning(text)
    try:
        read = _reader(model, found_in_file)(**flags)
    except ValidationError as error:
        sources = Sources(flags=flags, environ=os.environ, prefix=model.prefix, file=file)
        lines = ["wrong settings", *wrong_settings(model, error, sources, model.former)]
        raise UserError("\n  ".join(lines)) from None
    except (SettingsError, RecursionError) as error:
        lines = not_json(model, os.environ, model.prefix)
        raise UserError(
            "; ".join(lines) or f"the environment has no settings: {error}"
        ) from error
    return model.model_construct(**{x: getattr(read, x) for x in model.model_fields})


def _reader(model: type[SettingsT], from_file: dict[str, Any]) -> type[BaseSettings]:
    """Return the class that looks for the fields of ``model`` in all places."""

    class Reader(model, BaseSettings):  # type: ignore[misc, valid-type]
        model_config = SettingsConfigDict(
            env_prefix=model.prefix, env_nested_delimiter="__", extra="forbid"
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            del dotenv_settings, file_secret_settings
            return (init_settings, env_settings, InitSettingsSource(settings_cls, from_file))

    return Reader


def _read(file: Path, init_command: str) -> dict[str, Any]:
    try:
        return tomllib.loads(read_file(file, most=_MAX_BYTES).decode("utf-8-sig"))
    except FileNotFoundError:
        raise UserError(
            f"there is no file {file}; make one with: {init_command} {file}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"the settings in {file} cannot be read: {reason}") from error
    except (ValueError, RecursionError) as error:  # also a number that is too long
        raise UserError(f"{file} is not TOML: {error}") from error

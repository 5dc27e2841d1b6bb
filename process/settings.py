"""Settings, wherever they come from: what is common to those of a host and of a pipeline.

A value is taken from the first place that has it: the command line, the environment, the
TOML file, the default.
"""

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
    TomlConfigSettingsSource,
)

from .errors import Mistake
from .wrong_settings import Sources, unknown_variables, wrong_settings

Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Part(BaseModel):
    """A section."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class LogSettings(Part):
    """Structured logs on standard error."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
    """``auto``: for people on a terminal, JSON elsewhere."""


class AllSettings(BaseSettings):
    """Everything that a process is told. Subclasses say their prefix in the environment."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_nested_delimiter="__", use_attribute_docstrings=True
    )

    maker: ClassVar[str]
    """The command that writes a file with all of them."""
    neighbours: ClassVar[tuple[str, ...]] = ()
    """Sections in the environment that are another process's."""

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
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls))


Told = TypeVar("Told", bound=AllSettings)


def read_settings(model: type[Told], file: Path | None, flags: Mapping[str, Any]) -> Told:
    """Merge a TOML file, the environment and nested ``flags`` into settings.

    Raise ``Mistake``, which names each setting that is wrong, with the place it is from.
    """
    if file is not None:
        _check_readable(file, model.maker)
    prefix = str(model.model_config.get("env_prefix"))
    if strangers := unknown_variables(model, os.environ, prefix, model.neighbours):
        raise Mistake("; ".join(strangers))

    class FromFile(model):  # type: ignore[misc, valid-type]
        # Where pydantic looks for the name of the file.
        model_config = SettingsConfigDict(toml_file=file)

    try:
        found = FromFile(**flags)
    except ValidationError as error:
        sources = Sources(file=file, flags=flags, environ=os.environ, prefix=prefix)
        lines = ["wrong settings", *wrong_settings(model, error, sources)]
        raise Mistake("\n  ".join(lines)) from None
    except SettingsError as error:
        raise Mistake(
            f"an environment variable is not JSON, as that of a whole section must be: "
            f"{error}. Set single values, as in {prefix}LOG__LEVEL=debug"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise Mistake(f"{file} is no TOML: {error}") from error
    return model.model_construct(**{x: getattr(found, x) for x in model.model_fields})


def _check_readable(file: Path, maker: str) -> None:
    """Read it once for the errors, which would otherwise not be told, or not well."""
    try:
        file.read_text("utf-8")
    except FileNotFoundError:
        raise Mistake(f"there is no file {file}; make one with: {maker} {file}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Mistake(f"the settings in {file} cannot be read: {error}") from error

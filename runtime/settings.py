"""Settings from all sources: what the host's and the pipeline's have in common.

A value is taken from the first place that has it: the command line, the environment, the
TOML file, the default. Settings are plain values: only ``read_settings`` looks anywhere.

A process may have several processors, ``[processors.NAME]``. In each place, what is said for a
processor goes before what is said for all of them.
"""

import logging
import os
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar, get_args

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
    EnvSettingsSource,
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
    ignored_variables,
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

PROCESSORS = "processors"
_PROCESSOR = re.compile("[a-z][a-z0-9]*([_-][a-z0-9]+)*")
_MAX_NAME = 63
_MIN_PARTS = 3  # of a name in the environment: processor, section, setting

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
        frozen=True,
        extra="forbid",
        validate_default=True,
        defer_build=True,  # of all sections, one process validates the outermost
    )

    @classmethod
    def defaults(cls) -> Any:
        """Return what says, for a field, that the section is there with all of its defaults.

        They are checked with what is around them: to make the section would check it twice.
        """
        return Field(default_factory=dict)

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
    """Sections in the environment that are another process's, and what is no setting."""
    of_processors: ClassVar[tuple[str, ...]] = ()
    """Sections that each of several processors may have for itself."""


SettingsT = TypeVar("SettingsT", bound=AllSettings)


def read_settings(
    model: type[SettingsT], file: Path | None, flags: Mapping[str, Any]
) -> SettingsT:
    """Merge a TOML file, the environment and nested ``flags`` into the settings of a process
    that has no processors; see ``read_processors``.
    """
    assert not model.of_processors, "what has several processors has no one settings"
    return read_processors(model, file, flags)[""]


def read_processors(
    model: type[SettingsT], file: Path | None, flags: Mapping[str, Any]
) -> Mapping[str, SettingsT]:
    """Merge a TOML file, the environment and nested ``flags`` into the settings of each
    processor by its name; where none is named there is one, and its name is empty.

    Raise ``UserError``, which names each setting that is wrong, with the place it is from.
    """
    reading = _Reading(model, {} if file is None else _read(file, model.init_command), flags)
    foreign = (*model.foreign_sections, *_OF_OTHERS, PROCESSORS)
    if unknown := unknown_variables(model, os.environ, model.prefix, foreign):
        raise UserError("; ".join(unknown))
    names = reading.processors()
    prefixes = (model.prefix, *map(reading.prefix, names))
    for prefix in prefixes:
        for text in ignored_variables(model, os.environ, prefix, foreign):
            _log.warning(text)
    found, wrong = dict[str, SettingsT](), list[str]()
    for name in names or ("",):
        try:
            found[name] = reading.settings(name)
        except ValidationError as error:
            sources = Sources(
                flags=flags,
                environ=os.environ,
                prefix=model.prefix,
                file=file,
                in_file=reading.file,
                processor=(PROCESSORS, name) if name else (),
            )
            wrong += wrong_settings(model, error, sources)
        except (SettingsError, RecursionError) as error:
            lines = [y for x in prefixes for y in not_json(model, os.environ, x)]
            raise UserError(
                "; ".join(lines) or f"the environment has no settings: {error}"
            ) from error
    if wrong:
        raise UserError("\n  ".join(dict.fromkeys(("wrong settings", *wrong))))
    return found


class _Reading(Generic[SettingsT]):
    """The places where settings are. What they say for all processors is one mapping each."""

    def __init__(
        self, model: type[SettingsT], file: Mapping[str, Any], flags: Mapping[str, Any]
    ) -> None:
        self.file = file
        self._model = model
        self._flags = flags

    def prefix(self, processor: str) -> str:
        """Return what the variables of a processor in the environment begin with."""
        return f"{self._model.prefix}{PROCESSORS}__{processor.replace('-', '_')}__".upper()

    def processors(self) -> Collection[str]:
        """Return the names of processors that the file, the command line or the environment
        has. Raise ``UserError`` for one that cannot be, or has what no processor has.
        """
        found = dict[str, None]()
        if not self._model.of_processors:
            return found
        for place in (self.file, self._flags):
            sections = place.get(PROCESSORS, {})
            if not isinstance(sections, Mapping):
                raise UserError(f"{PROCESSORS}: write a section for each, as [processors.NAME]")
            for name, given in sections.items():
                self._check(name, given)
                found[name] = None
        known = {self.prefix(x) for x in found}
        found |= {x: None for x in self._in_environment() if self.prefix(x) not in known}
        for name in found:
            of = self.prefix(name)
            if unknown := unknown_variables(self._model, os.environ, of, ()):
                raise UserError("; ".join(unknown))
        return found

    def _in_environment(self) -> Iterator[str]:
        begin = f"{self._model.prefix}{PROCESSORS}".upper()
        for variable in sorted(os.environ):
            of_all, *parts = variable.upper().split("__")
            if of_all != begin:
                continue
            if len(parts) < _MIN_PARTS:
                raise UserError(
                    f"the environment has {variable}: set each setting of a processor by "
                    f"itself, as {begin}__NAME__FEED__ADDRESS"
                )
            name, section, *_ = (x.lower() for x in parts)
            self._check(name, {section: None})
            yield name

    def _check(self, name: str, given: object) -> None:
        if not _PROCESSOR.fullmatch(name) or len(name) > _MAX_NAME:
            raise UserError(
                f"{name!r} cannot be the name of a processor: take up to {_MAX_NAME} small "
                f"letters and digits, a letter first, with single - and _ between them, as in "
                f"orders-to-search"
            )
        known = self._model.of_processors
        if not isinstance(given, Mapping):
            raise UserError(f"{PROCESSORS}.{name} should be a section: [{PROCESSORS}.{name}]")
        if unknown := sorted(given.keys() - {*known}):
            raise UserError(
                f"{PROCESSORS}.{name}.{unknown[0]}: a processor has no such section for "
                f"itself. Known: {', '.join(known)}; what the process has once is at the top"
            )

    def settings(self, processor: str) -> SettingsT:
        """Return what is set for a processor, or for all."""
        model, flags, file = self._model, self._flags, self.file
        prefix = self.prefix(processor)

        def init(place: Mapping[str, Any], of: str = "") -> InitSettingsSource:
            own = place.get(PROCESSORS, {}).get(of, {}) if of else place
            hidden = PROCESSORS if model.of_processors else None
            return InitSettingsSource(Reader, {x: own[x] for x in own if x != hidden})

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
                del init_settings, dotenv_settings, file_secret_settings
                of_all = (init(flags), env_settings, init(file))
                if not processor:
                    return of_all
                own_variables = EnvSettingsSource(settings_cls, env_prefix=prefix)
                own = (init(flags, processor), own_variables, init(file, processor))
                return tuple(chain.from_iterable(zip(own, of_all, strict=True)))

        read = Reader()
        return model.model_construct(**{x: getattr(read, x) for x in model.model_fields})


def _read(file: Path, init_command: str) -> dict[str, Any]:
    try:
        return tomllib.loads(read_file(file, most=_MAX_BYTES).decode("utf-8-sig"))
    except FileNotFoundError:
        raise UserError(
            f"there is no file {file}; make one with: {init_command} {file}"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "save it as UTF-8"
        raise UserError(f"the settings in {file} cannot be read: {reason}") from error
    except (ValueError, RecursionError) as error:  # also a number that is too long
        raise UserError(f"{file} is not TOML: {error}") from error

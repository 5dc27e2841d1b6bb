"""Dead letters by address, as settings and command lines name them.

``sqlite:PATH`` and ``jsonl:PATH`` are files. ``postgresql://HOST/DATABASE`` is a table and
``cosmos://HOST/DATABASE/CONTAINER`` a container, which hosts on all machines share. A new
kind is one more line in the table.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from changefeed.feeds.backend import OpenOptions
from changefeed.observers.dead_letters.jsonl import open_jsonl
from changefeed.observers.dead_letters.letter import DeadLetters, no_letters
from changefeed.observers.dead_letters.sqlite import open_sqlite
from changefeed.observers.errors import DeadLettersRefused
from changefeed.runtime.backends import why_unreadable

Opened = AbstractAsyncContextManager[DeadLetters]


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of place; ``shape`` shows what follows the scheme."""

    shape: str
    open: Callable[[str, str, OpenOptions], Opened]
    is_file: bool = False


def _open_postgres(_: str, place: str, options: OpenOptions) -> Opened:
    try:
        from changefeed.observers.dead_letters.postgres import open_postgres  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise DeadLettersRefused(
            "dead letters in PostgreSQL need a package: pip install 'changefeed-host[postgres]'"
        ) from error
    password = options.backends.get("postgres", {}).get("password")
    if isinstance(password, SecretStr):
        password = password.get_secret_value()
    return open_postgres(
        place, password=password and str(password), must_exist=options.must_exist
    )


def _open_cosmos(scheme: str, place: str, options: OpenOptions) -> Opened:
    from changefeed.observers.dead_letters.cosmos import open_cosmos  # noqa: PLC0415

    return open_cosmos(scheme, place, options.cosmos, must_exist=options.must_exist)


_CONTAINER = "//HOST/DATABASE/CONTAINER"
_KINDS: Mapping[str, _Kind] = {
    "sqlite": _Kind("PATH", lambda _, place, __: open_sqlite(place), is_file=True),
    "jsonl": _Kind("PATH", lambda _, place, __: open_jsonl(place), is_file=True),
    "postgresql": _Kind("//HOST/DATABASE", _open_postgres),
    "cosmos": _Kind(_CONTAINER, _open_cosmos),
    "cosmos+http": _Kind(_CONTAINER, _open_cosmos),
}


def open_dead_letters(address: str, options: OpenOptions | None = None) -> Opened:
    """Open a place for dead letters, making it if it is not there, unless it
    ``options.must_exist``.

    Secrets come from ``options``, or from the environment. Raise ``DeadLettersRefused`` for
    an address that cannot be one, here or when entered.
    """
    unreadable = why_unreadable(address)
    if unreadable is not None:
        raise DeadLettersRefused(f"the address of dead letters cannot be read: {unreadable}")
    scheme, colon, place = address.partition(":")
    if not colon or scheme not in _KINDS:
        known = ", ".join(f"{name}:{kind.shape}" for name, kind in _KINDS.items())
        raise DeadLettersRefused(
            f"{address!r} is no address of dead letters; there are: {known}"
        )
    kind = _KINDS[scheme]
    if not place:
        raise DeadLettersRefused(f"{address!r} does not say where: {scheme}:{kind.shape}")
    options = options or OpenOptions()
    if kind.is_file and options.must_exist:
        _require_file(place)
    return kind.open(scheme, place, options)


def _require_file(place: str) -> None:
    try:
        there = Path(place).exists()
    except OSError as error:  # a path that no file can have
        raise DeadLettersRefused(f"{place}: {error.strerror}") from error
    if not there:
        raise no_letters(place)

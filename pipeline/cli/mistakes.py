"""How commands end: 0 after an orderly end, 1 if it failed and may work later, 2 if a
person has to change something first. A traceback means a bug of ours.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import typer

from feeds.errors import FeedError, FeedRefused
from leases.errors import ContainerError, ContainerRefused
from observers.errors import DeadLettersRefused, ObserverError, ObserverRefused
from pipeline.errors import PipelineRefused, QueryFailed

FAILED = 1
MISTAKE = 2

_MISTAKES = (
    PipelineRefused,
    FeedRefused,
    ContainerRefused,
    ObserverRefused,
    DeadLettersRefused,
)
_FAILURES = (FeedError, ContainerError, ObserverError, QueryFailed, OSError)


@contextmanager
def mistakes_told() -> Iterator[None]:
    """End the command with a message instead of a traceback, where the error is known."""
    try:
        yield
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise
    except Exception as error:
        told = _explained(error)
        if told is None:
            raise
        _end(*told)


def _explained(error: Exception) -> tuple[str, int] | None:
    if isinstance(error, _MISTAKES) or (isinstance(error, QueryFailed) and error.refused):
        return str(error), MISTAKE
    if isinstance(error, ModuleNotFoundError):
        if error.name not in ("pyspark", "pyarrow", "deltalake"):
            return None
        return f"{error.name} is missing: pip install 'changefeed-host[spark]'", MISTAKE
    if isinstance(error, _FAILURES):
        return str(error), FAILED
    if type(error).__module__.startswith("py4j"):  # not imported where there is no Spark
        return f"Spark's Java process does not answer any more: {error}", FAILED
    return None


def _end(text: str, code: int) -> NoReturn:
    sys.stderr.write(f"changefeed: {text}\n")
    raise typer.Exit(code) from None

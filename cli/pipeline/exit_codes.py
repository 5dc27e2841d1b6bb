"""How commands that need Spark end: as all others do, and what Spark raises is explained."""

from collections.abc import Iterator
from contextlib import contextmanager

from changefeed.cli.exit_codes import mistakes_told
from changefeed.runtime.errors import Failure, Mistake


@contextmanager
def spark_mistakes_told() -> Iterator[None]:
    """End the command with a message instead of a traceback, where the error is known."""
    with mistakes_told():
        try:
            yield
        except ModuleNotFoundError as error:
            if error.name not in ("pyspark", "pyarrow", "deltalake"):
                raise
            raise Mistake(
                f"{error.name} is missing: pip install 'changefeed-host[spark]'"
            ) from error
        except Exception as error:
            if not type(error).__module__.startswith("py4j"):  # imported only where Spark is
                raise
            raise Failure(f"Spark's Java process does not answer any more: {error}") from error

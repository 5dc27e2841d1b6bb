"""How commands that need Spark end: as all others do, and what Spark raises is exit_message."""

from collections.abc import Iterator
from contextlib import contextmanager

from changefeed.cli.exit_codes import exit_on_error
from changefeed.runtime.errors import Failure, UserError


@contextmanager
def exit_on_spark_error() -> Iterator[None]:
    """End the command with a message instead of a traceback, where the error is known."""
    with exit_on_error():
        try:
            yield
        except ModuleNotFoundError as error:
            if error.name not in ("pyspark", "pyarrow", "deltalake"):
                raise
            raise UserError(
                f"{error.name} is missing: pip install 'changefeed-host[spark]'"
            ) from error
        except Exception as error:
            if not type(error).__module__.startswith("py4j"):  # imported only where Spark is
                raise
            raise Failure(f"Spark's Java process does not answer any more: {error}") from error

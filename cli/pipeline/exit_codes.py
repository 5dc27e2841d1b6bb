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
            if not _is_of_java(error):
                raise
            raise Failure(
                f"Spark's Java process has ended, or does not answer any more ({error}). What "
                f"it said last is above; where the system killed it, it had too little memory: "
                f"set 'spark.driver.memory' under [spark]. The next start goes on"
            ) from error


def _is_of_java(error: Exception) -> bool:
    """Whether the connection to Java broke. Feeds turn what breaks there into their own."""
    by_name = type(error).__module__.startswith("py4j")  # imported only where Spark is
    return by_name or isinstance(error, ConnectionRefusedError | ConnectionResetError)

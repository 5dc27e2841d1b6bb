"""What Spark raises, as errors that end a command with a message."""

from collections.abc import Iterator
from contextlib import contextmanager

from changefeed.runtime.errors import Failure, UserError


@contextmanager
def explaining_spark() -> Iterator[None]:
    """Raise ``UserError`` if Spark is not installed, ``Failure`` if its Java has ended."""
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

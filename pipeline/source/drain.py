"""Stop a query between two batches. Spark itself can only break a batch off.

As long as the file that the option ``holdFile`` names is there, the source reports nothing
new, so no batch begins, and the running one ends as usual. Spark asks for the end of the
next batch only when the last one is committed. The source records in the file that it was
asked: from then on no batch is running.

Limits: the planner of the source must see the file, as it does beside the driver. A batch
without changes, by which Spark forgets old windows, may still begin; breaking it off does
no harm.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory


def held(file: str | None) -> bool:
    """Return, for the source, whether no batch may begin, and record that it has asked."""
    if file is None or not Path(file).exists():
        return False
    with Path(file).open("ab") as asked:
        asked.write(b".")
    return True


class DrainGate:
    """Holds the queries of one process, each by a file of its own."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def file(self, query: str) -> str:
        """Return what the option ``holdFile`` of a query has to be."""
        return str(self._directory / query)

    def begin(self, query: str) -> None:
        Path(self.file(query)).touch()

    def noticed(self, query: str) -> bool:
        """Say whether the source has been asked since: the last batch is done."""
        return Path(self.file(query)).stat().st_size > 0


@contextmanager
def holding() -> Iterator[DrainGate]:
    """Yield what can hold queries, for as long as this machine's process lasts."""
    with TemporaryDirectory(prefix="changefeed-hold-", ignore_cleanup_errors=True) as directory:
        yield DrainGate(Path(directory))

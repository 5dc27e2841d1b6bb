"""Spark's daemon of Python workers, without its tracebacks where no process listens any more.

Spark closes a worker's connection once it has what it wants, as at the end of a query. The
worker then finds that it cannot send the rest, and Spark's daemon prints a ``BrokenPipeError``
for it, after a run in which all went well. Java knows better whether a task has failed.

Named by ``spark.python.daemon.module``. The daemon forks its workers, so nothing is imported
here that begins threads.
"""

import socket
from collections.abc import Callable

from pyspark import daemon

Worker = Callable[[socket.socket, bool], int]


def without_broken_pipes(worker: Worker) -> Worker:
    """Let a worker whose connection is closed end like one that is not needed any more."""

    def until_closed(sock: socket.socket, authenticated: bool) -> int:  # noqa: FBT001 - Spark's
        try:
            return worker(sock, authenticated)
        except (BrokenPipeError, ConnectionResetError):
            return 1  # the process ends, and no task is given to it again

    return until_closed


if __name__ == "__main__":
    setattr(daemon, "worker", without_broken_pipes(daemon.worker))  # noqa: B010 - it is a function
    daemon.manager()

"""Tasks that begin and end together: the first that ends stops the others.

Each task first opens what it needs, which may take any time, and is cancelled if a stop comes
before it has; from then on it is asked to stop, in its own way. What a task logs, and code that
it calls, says its name (``processor``), and so does what it fails of.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from structlog.contextvars import bound_contextvars

from changefeed.runtime.calls import unexpected_cancellation

Job = Callable[[], Coroutine[Any, Any, None]]


def label_of(processor: str) -> dict[str, str]:
    """Return what logs and metrics of a processor have: nothing for one without a name."""
    return {"processor": processor} if processor else {}


def path_of(processor: str) -> str:
    """Return where a process serves what a processor has; at the top without a name."""
    return f"/processors/{processor}" if processor else ""


@contextmanager
def naming(processor: str) -> Iterator[None]:
    """Let what the block fails of say which processor it is, if that has a name."""
    try:
        yield
    except Exception as error:
        if processor:
            error.add_note(f"processor {processor}")
        raise


class LinkedTasks:
    """Runs once. A task without a name is the only one, and is not spoken of."""

    def __init__(self) -> None:
        self._tasks = dict[str, asyncio.Task[None]]()
        self._stops = dict[str, Callable[[], object]]()
        self._stopping = False

    def stop(self) -> None:
        """Ask all to stop; asked again, each is asked again. Returns immediately."""
        self._stopping = True
        for name, task in self._tasks.items():
            self._stops.get(name, task.cancel)()

    def opened(self, name: str, stop: Callable[[], object]) -> bool:
        """Let the task of this name stop by a call from now on. Return whether all can."""
        self._stops[name] = stop
        return len(self._stops) == len(self._tasks)

    async def run(self, jobs: Mapping[str, Job]) -> None:
        """Run a task for each job until all have ended.

        Raise what one of them failed of, or all that failed; ``CancelledError`` where a stop
        was asked for before any had opened.
        """
        for name, job in jobs.items():
            self._tasks[name] = asyncio.create_task(self._run_one(name, job))
        try:
            await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not self._stopping:
                self.stop()
            await asyncio.wait(self._tasks.values())
        failed = [x.exception() for x in self._tasks.values() if not x.cancelled()]
        match [x for x in failed if x is not None]:
            case []:
                if not self._stops:
                    raise asyncio.CancelledError
            case [error]:
                raise error
            case errors:
                raise BaseExceptionGroup("several failed", errors)

    async def _run_one(self, name: str, job: Job) -> None:
        try:
            with naming(name), bound_contextvars(**label_of(name)):
                await job()
        except asyncio.CancelledError as error:
            if self._stopping:
                raise
            what = f"the task of processor {name}" if name else "the main task"
            raise unexpected_cancellation(what, "other code") from error

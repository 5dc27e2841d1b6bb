"""A processor over containers that a program has opened with azure-cosmos, as in .NET and Java.

    processor = ChangeFeedProcessor(orders, leases, on_changes, processor_name="to-search")
    async with processor:
        await processor.wait()

It is a host (``changefeed.host.host``) over these objects; the program's client does the
requests, with its credential and options, and stays the program's.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import ValidationError
from structlog.contextvars import bound_contextvars

from changefeed.host.host import Host
from changefeed.host.settings import Settings
from changefeed.host.shared import Process
from changefeed.host.wiring import guest_host
from changefeed.runtime.errors import UserError
from changefeed.runtime.linked_tasks import LinkedTasks

if TYPE_CHECKING:
    from azure.cosmos.aio import ContainerProxy

    from changefeed.runtime.settings import Section

Time = float | timedelta
"""Seconds, or as ``timedelta``."""
_SETTINGS = {
    "instance_name": ("host", "name"),
    "start_time": ("feed", "start"),
    "max_items": ("feed", "page_size"),
    "poll_interval": ("feed", "poll_interval"),
    "lease_expiration": ("leases", "expiration"),
}
"""The section and the setting that each option is."""


class _Background(ABC):
    """What runs once, in a task of its own: between ``start`` and ``stop``, or in a block."""

    def __init__(self) -> None:
        self._opened = asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._body: asyncio.Task[Any] | None = None
        self._cancelled_body = False

    @abstractmethod
    async def _run(self) -> None:
        """Open what is needed, set ``_opened``, and go on until asked to stop."""

    @abstractmethod
    def _ask_to_stop(self) -> None:
        """Ask for an orderly stop. Returns immediately."""

    async def start(self) -> None:
        """Open all containers, and begin in the background.

        What does not answer is asked again until it does. Raise ``FeedRefused``,
        ``StoreRefused`` or ``UserError``, with advice, for what cannot be used as it is.
        """
        if self._running is not None:
            raise UserError(f"{self} runs once: make another")
        opened = asyncio.create_task(self._opened.wait())
        self._running = asyncio.create_task(self._run())
        try:
            await asyncio.wait((opened, self._running), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._running.cancel()
            await asyncio.wait((self._running,))
            raise
        finally:
            opened.cancel()
        if not self._opened.is_set():
            self._running.result()  # raises why it was not opened

    async def stop(self) -> None:
        """Finish what observers have in hand, checkpoint, and release the leases, within
        ``host.stop_timeout``. Raise what it failed of, if it did.
        """
        if self._opened.is_set():
            self._ask_to_stop()
            await self.wait()

    async def wait(self) -> None:
        """Wait until it has stopped, and raise what it failed of, if it did.

        To cancel this leaves it running.
        """
        if self._running is None:
            raise UserError(f"{self} has not been started")
        await asyncio.wait((self._running,))
        self._running.result()

    @asynccontextmanager
    async def lifespan(self, _: Any = None) -> AsyncIterator[None]:
        """Run with an application: ``FastAPI(lifespan=processor.lifespan)``, or Starlette."""
        async with self:
            yield

    async def __aenter__(self) -> Self:
        await self.start()
        assert self._running is not None, "a processor that has started runs"
        self._body = asyncio.current_task()
        self._running.add_done_callback(self._ended)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        *_: object,
    ) -> None:
        body, self._body = self._body, None
        assert body is not None, "a block is entered before it is left"
        assert self._running is not None, "a processor that has started runs"
        cancelled_by_us = self._cancelled_body and not body.uncancel()
        self._ask_to_stop()
        await asyncio.wait((self._running,))
        if kind is None or (cancelled_by_us and kind is asyncio.CancelledError):
            self._running.result()

    def _ended(self, running: asyncio.Task[None]) -> None:
        if self._body is not None and not running.cancelled() and running.exception():
            self._cancelled_body = True
            self._body.cancel()


class ChangeFeedProcessor(_Background):
    """Gives the changes of a container to ``on_changes``, sharing its ranges with all
    processors that have the same ``processor_name`` and lease container, those of .NET too.

    Both containers are ``azure.cosmos.aio.ContainerProxy``; the lease container has the
    partition key ``/id`` (or ``/partitionKey``) and is there. ``on_changes`` is an observer: an
    async or plain function, or a class (see ``Observer``).

    ``instance_name`` differs between processes, and stays over a restart: the machine's name
    by default. ``start_time`` is ``"beginning"``, ``"now"``, ``"snapshot"`` (of all versions:
    the latest version of every item first) or a time with its zone, and counts
    where there are no leases yet. ``max_items`` is about how many changes a call gets,
    ``poll_interval`` how long to wait at the end of a range, ``lease_expiration`` after how
    long without a sign of life a process loses its leases. Where one of these is ``None``, the
    ``settings`` say it, which have everything else. Addresses in them do not count, but for
    that of the dead letters.

    It runs once: ``start`` and ``stop``, or ``async with``. In a block a failure of the
    processor cancels what is in the block and is raised at its end.
    """

    def __init__(
        self,
        feed_container: "ContainerProxy",
        lease_container: "ContainerProxy",
        on_changes: Any,
        *,
        processor_name: str,
        instance_name: str | None = None,
        start_time: datetime | Literal["beginning", "now", "snapshot"] | None = None,
        max_items: int | None = None,
        poll_interval: Time | None = None,
        lease_expiration: Time | None = None,
        mode: Literal["latest-version", "all-versions"] = "latest-version",
        settings: Settings | None = None,
    ) -> None:
        """Raise ``UserError`` for a value out of its range. Nothing is asked or written."""
        super().__init__()
        given = {
            "instance_name": instance_name,
            "start_time": start_time,
            "max_items": max_items,
            "poll_interval": poll_interval,
            "lease_expiration": lease_expiration,
        }
        self._settings = _with_options(settings or Settings(), given)
        self._containers = feed_container, lease_container
        self._on_changes = on_changes
        self._name = processor_name
        self._mode = mode
        self._process = Process()
        self._host: Host | None = None

    def __str__(self) -> str:
        return f"processor {self._name}"

    @property
    def host(self) -> Host:
        """What runs: its leases, lags and health; see ``endpoints`` and ``asgi_endpoints``.

        Raise ``UserError`` before ``start`` has returned.
        """
        if self._host is None:
            raise UserError(f"{self} has not been started")
        return self._host

    async def _run(self) -> None:
        # The clients of Cosmos DB are loaded for those who use them.
        from changefeed.feeds.cosmos.opening import feed_over  # noqa: PLC0415
        from changefeed.leases.cosmos.opening import leases_over  # noqa: PLC0415

        feed, leases = self._containers
        with bound_contextvars(processor=self._label):
            async with guest_host(
                self._settings,
                self._on_changes,
                feed=lambda: feed_over(feed, mode=self._mode),
                leases=lambda: leases_over(
                    leases, feed=feed, processor=self._name, mode=self._mode
                ),
                processor=self._label,
                process=self._process,
            ) as self._host:
                self._opened.set()
                await self._host.run()

    def _ask_to_stop(self) -> None:
        self.host.stop()

    @property
    def _label(self) -> str:
        """What logs and metrics call it: a trigger of Azure Functions may have no name."""
        return self._name or self._containers[0].id


class ProcessorGroup(_Background):
    """Several processors of one program, which start and stop together.

    One that fails stops the others, and what it failed of is raised as by one processor. Each
    has a name of its own, which logs and metrics tell it by. It runs once.
    """

    def __init__(self, *processors: ChangeFeedProcessor) -> None:
        """Raise ``UserError`` where there is none, and for two of one name."""
        super().__init__()
        self._tasks = LinkedTasks()
        self._processors = {x._label: x for x in processors}  # noqa: SLF001 - of this module
        if not processors or len(self._processors) < len(processors):
            raise UserError(
                "a group has one processor or more, each with a processor_name of its own: it "
                f"has {', '.join(map(str, processors)) or 'none'}"
            )
        process = Process()
        for x in processors:
            x._process = process  # noqa: SLF001 - likewise

    def __str__(self) -> str:
        return f"the group of {', '.join(self._processors)}"

    async def _run(self) -> None:
        await self._tasks.run({x: partial(self._run_one, x) for x in self._processors})

    async def _run_one(self, name: str) -> None:
        one = self._processors[name]
        await one.start()
        if self._tasks.opened(name, one.host.stop):
            self._opened.set()
        await one.wait()

    def _ask_to_stop(self) -> None:
        self._tasks.stop()


def _with_options(settings: Settings, given: Mapping[str, object]) -> Settings:
    """Return the settings with what was given in the place of theirs."""
    for option, value in given.items():
        if value is None:
            continue
        name, field = _SETTINGS[option]
        section: Section = getattr(settings, name)
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        try:
            checked = type(section).model_validate({field: seconds})
        except ValidationError as error:
            raise UserError(f"{option}={value}: {error.errors()[0]['msg']}") from error
        changed = section.model_copy(update={field: getattr(checked, field)})
        settings = settings.model_copy(update={name: changed})
    return settings

"""A processor over containers that a program has opened with azure-cosmos, as in .NET and Java.

    processor = ChangeFeedProcessor(orders, leases, on_changes, processor_name="to-search")
    async with processor:
        await processor.wait()

It is a host (``changefeed.host.host``) over these objects; the program's client does the
requests, with its credential and options, and stays the program's.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import ValidationError

from changefeed.host.host import Host
from changefeed.host.settings import Settings
from changefeed.host.wiring import guest_host
from changefeed.runtime.errors import UserError

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


class ChangeFeedProcessor:
    """Gives the changes of a container to ``on_changes``, sharing its ranges with all
    processors that have the same ``processor_name`` and lease container, those of .NET too.

    Both containers are ``azure.cosmos.aio.ContainerProxy``; the lease container has the
    partition key ``/id`` (or ``/partitionKey``) and is there. ``on_changes`` is an observer: an
    async or plain function, or a class (see ``Observer``).

    ``instance_name`` differs between processes, and stays over a restart: the machine's name
    by default. ``start_time`` is ``"beginning"``, ``"now"`` or a time with its zone, and counts
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
        start_time: datetime | Literal["beginning", "now"] | None = None,
        max_items: int | None = None,
        poll_interval: Time | None = None,
        lease_expiration: Time | None = None,
        mode: Literal["latest-version", "all-versions"] = "latest-version",
        settings: Settings | None = None,
    ) -> None:
        """Raise ``UserError`` for a value out of its range. Nothing is asked or written."""
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
        self._host: asyncio.Future[Host] | None = None
        self._running: asyncio.Task[None] | None = None
        self._body: asyncio.Task[Any] | None = None
        self._cancelled_body = False

    @property
    def host(self) -> Host:
        """What runs: its leases, lags and health; see ``endpoints`` and ``asgi_endpoints``.

        Raise ``UserError`` before ``start`` has returned.
        """
        if self._host is None or not self._host.done():
            raise UserError(f"processor {self._name} has not been started")
        return self._host.result()

    async def start(self) -> None:
        """Open both containers, and begin in the background.

        What does not answer is asked again until it does. Raise ``FeedRefused``,
        ``StoreRefused`` or ``ObserverRefused``, with advice, for what cannot be used as it is.
        """
        if self._running is not None:
            raise UserError(f"processor {self._name} runs once: make another")
        self._host = asyncio.get_running_loop().create_future()
        self._running = asyncio.create_task(self._run(self._host))
        try:
            await asyncio.wait((self._host, self._running), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._running.cancel()
            await asyncio.wait((self._running,))
            raise
        if not self._host.done():
            self._running.result()  # raises why it was not opened

    async def stop(self) -> None:
        """Finish what ``on_changes`` has in hand, checkpoint, and release the leases, within
        ``host.stop_timeout``. Raise what the processor failed of, if it did.
        """
        if self._host is not None and self._host.done():
            self.host.stop()
            await self.wait()

    async def wait(self) -> None:
        """Wait until it has stopped, and raise what it failed of, if it did.

        To cancel this leaves it running.
        """
        if self._running is None:
            raise UserError(f"processor {self._name} has not been started")
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
        self.host.stop()
        await asyncio.wait((self._running,))
        if kind is None or (cancelled_by_us and kind is asyncio.CancelledError):
            self._running.result()

    def _ended(self, running: asyncio.Task[None]) -> None:
        if self._body is not None and not running.cancelled() and running.exception():
            self._cancelled_body = True
            self._body.cancel()

    async def _run(self, opened: "asyncio.Future[Host]") -> None:
        # The clients of Cosmos DB are loaded for those who use them.
        from changefeed.feeds.cosmos.feed import feed_over  # noqa: PLC0415
        from changefeed.leases.cosmos.opening import leases_over  # noqa: PLC0415

        feed, leases = self._containers
        async with guest_host(
            self._settings,
            self._on_changes,
            feed=lambda: feed_over(feed, mode=self._mode),
            leases=lambda: leases_over(
                leases, feed=feed, processor=self._name, mode=self._mode
            ),
        ) as host:
            opened.set_result(host)
            await host.run()


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

"""What producers have in common: of an event log on this machine, and of brokers."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import Operation
from changefeed.log.records import Record


class Producer(ABC):
    """Appends changes to an event log or a collection. Make it with ``open_producer``.

    To be used from tasks of the loop that made it. Changes of one key keep the order in which
    they were sent.
    """

    async def send(
        self,
        key: str,
        value: Any = None,
        *,
        id: str | None = None,  # noqa: A002 - the name of the field it fills
        operation: Operation = Operation.INSERT,
        previous: Any = None,
    ) -> None:
        """Append one change, and return once it is durable.

        ``key`` orders and places it. ``value`` is JSON text as ``bytes``, or anything that
        JSON can say (``None``: no body, as of a delete); so is ``previous``, the image before
        the change. ``id`` is the key if not given.

        Raise ``FeedRefused`` for a change that cannot be stored, and ``FeedUnavailable`` if it
        could not be written and may be sent again. A task that is cancelled does not learn
        whether its change was written.
        """
        await self.send_many(
            [
                Record(
                    key=key,
                    body=as_json(value),
                    id=id,
                    operation=operation,
                    previous=None if previous is None else as_json(previous),
                )
            ]
        )

    async def send_many(self, records: Sequence[Record]) -> None:
        """Append some changes, and return once all are durable. Else as ``send``.

        An event log on this machine takes all of them or none. Of brokers each takes its own,
        so that some may be stored where others fail.
        """
        if records:
            await (await self.submit(records))

    @abstractmethod
    async def submit(self, records: Sequence[Record]) -> asyncio.Future[None]:
        """Hand changes over, and return at once what is done when they are durable.

        For many in flight at a time: await the future later, or ``add_done_callback``. Its
        error is what ``send`` raises. Brokers: waits while too much is on its way already.
        """

    @abstractmethod
    async def flush(self) -> None:
        """Return once all that was handed over is durable or has failed."""


def as_json(value: Any) -> bytes:
    """Return JSON text; what is ``bytes`` is text already, and ``None`` is none."""
    if isinstance(value, bytes):
        return value
    try:
        return b"" if value is None else msgspec.json.encode(value)
    except (TypeError, ValueError) as error:
        raise FeedRefused(f"the value cannot be written as JSON: {error}") from error

"""Opening a producer by the address of what it writes to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from changefeed.feeds.brokers import address as brokers
from changefeed.feeds.brokers.access import BrokerAccess
from changefeed.feeds.brokers.producer import open_brokers_producer
from changefeed.feeds.brokers.sender import ProducerOptions
from changefeed.feeds.eventlog.create import DEFAULT_PARTS
from changefeed.feeds.eventlog.producer import open_log_producer
from changefeed.feeds.eventlog.sealing import SealPolicy
from changefeed.feeds.producer import Producer


@asynccontextmanager
async def open_producer(
    address: str | Path,
    *,
    create: bool = True,
    parts: int = DEFAULT_PARTS,
    options: ProducerOptions | None = None,
    sealing: SealPolicy | None = None,
) -> AsyncIterator[Producer]:
    """Write to an event log, or to a collection of a cluster, until the block is left.

    ``address`` is ``eventlog:data/log``, the directory of a log, or
    ``brokers://HOST:PORT,HOST:PORT/COLLECTION``. Leaving the block waits for what was sent.

    A log is made if there is none, with so many ``parts``, unless ``create`` is false; a
    collection has to be there. With ``sealing``, what it names of a log becomes Parquet in the
    background. ``options`` are for brokers; the token is in
    ``CHANGEFEED_BACKENDS__BROKERS__TOKEN``. Raise ``FeedUnavailable`` while another process
    writes to the log, naming it, or while no broker answers; and ``FeedRefused`` for what is no
    log and no collection.
    """
    scheme, _, place = str(address).partition(":")
    if scheme in (brokers.PLAIN, brokers.TLS):
        where = brokers.parse_address(scheme, place)
        access = BrokerAccess.of_environment()
        async with open_brokers_producer(where, access, options) as through_brokers:
            yield through_brokers
        return
    opening = open_log_producer(address, create=create, parts=parts, sealing=sealing)
    async with opening as on_this_machine:
        yield on_this_machine

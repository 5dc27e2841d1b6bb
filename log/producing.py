"""Opening a producer by the address of what it writes to."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from difflib import get_close_matches
from pathlib import Path

from changefeed.feeds.errors import FeedRefused
from changefeed.log.client import address as brokers
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.producer import open_brokers_producer
from changefeed.log.client.sender import ProducerOptions
from changefeed.log.directory.directory import create_log, has_nothing
from changefeed.log.directory.writer import EventLogWriter
from changefeed.log.hashing import DEFAULT_PARTS
from changefeed.log.producer import Producer
from changefeed.runtime.paths import expanded

_LOG = "eventlog"
_WRITABLE = (_LOG, brokers.PLAIN, brokers.TLS)
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(//)?")


@asynccontextmanager
async def open_producer(
    address: str | Path,
    *,
    create: bool = True,
    parts: int = DEFAULT_PARTS,
    options: ProducerOptions | None = None,
) -> AsyncIterator[Producer]:
    """Write to an event log, or to a collection of a cluster, until the block is left.

    ``address`` is ``eventlog:data/log``, the directory of a log, or
    ``brokers://HOST:PORT,HOST:PORT/COLLECTION``. Leaving the block waits for what was sent.

    A log is made if there is none, with so many ``parts``, unless ``create`` is false; a
    collection has to be there. ``options`` are for brokers; the token is in
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
    home = await asyncio.to_thread(log_directory, address)
    if create and await asyncio.to_thread(has_nothing, home):
        await create_log(home, parts)
    async with EventLogWriter.open(home) as on_this_machine:
        yield on_this_machine


def log_directory(address: str | Path) -> Path:
    """Return the directory that ``eventlog:DIRECTORY``, or a plain path, names.

    Raise ``FeedRefused`` for text that looks like another address: a log would be made in a
    directory of that name, and no host would read it. A directory that is there is no mistake,
    but where two slashes follow.
    """
    if isinstance(address, Path):
        return expanded(address, FeedRefused)
    place = address.removeprefix(f"{_LOG}:")
    looks = _SCHEME.match(address) if place == address else None
    if looks is not None and (looks[2] or not Path(address.partition("/")[0]).is_dir()):
        near = get_close_matches(looks[1].lower(), _WRITABLE, n=1)
        advice = f"Did you mean {near[0]}:{address[len(looks[1]) + 1 :]}?" if near else ""
        raise FeedRefused(
            f"{address!r} is neither an event log nor a collection of a cluster. "
            f"{advice or _forms()} A directory of that name is ./{address}"
        )
    if not place:
        raise FeedRefused(f"{address!r} does not say where. {_forms()}")
    return expanded(place, FeedRefused)


def _forms() -> str:
    return f"Write DIRECTORY, {_LOG}:DIRECTORY or {brokers.PLAIN}://HOST:PORT/COLLECTION."

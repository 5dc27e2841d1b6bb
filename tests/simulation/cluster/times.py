"""Where a time is found must be where it is in what was stored."""

from random import Random

from changefeed.brokers.core import BrokerCore
from changefeed.feeds.brokers.catalog import Catalog

from .checker import Violation
from .process import BrokerProcess
from .store_checks import Key, Stored

_ASKED = 4


async def check_times(
    process: BrokerProcess, catalog: Catalog, stored: Stored, random: Random
) -> None:
    """Ask for times in some partitions, of records and beside them."""
    keys = sorted(stored.times)
    for key in random.sample(keys, min(_ASKED, len(keys))):
        times = stored.times[key]
        time_us = random.choice([*times[-20:], min(times), max(times) + 1])
        time_us += random.choice([-1, 0, 0, 1])
        await _check(process, catalog, key, times, time_us)


async def _check(
    process: BrokerProcess, catalog: Catalog, key: Key, times: list[int], time_us: int
) -> None:
    async def ask(core: BrokerCore) -> int | None:
        return await core.sequence_before(*key, time_us)

    found = await process.ask(ask, 60.0)
    start = next(x.start for x in catalog.collection(key[0]).partitions if x.id == key[1])
    reached = [n for n, at_us in enumerate(times) if at_us >= time_us and n >= start]
    wanted = reached[0] if reached else len(times)
    if (len(times) if found is None else found) != wanted:
        raise Violation(
            f"the time {time_us} is found behind {found} in {key}, and is behind {wanted}"
        )

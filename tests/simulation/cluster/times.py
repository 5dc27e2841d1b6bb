"""Where a time is found must be where it is in what was stored."""

from random import Random

from changefeed.log.brokers.core import BrokerCore
from tests.simulation.progress import Violation

from .process import BrokerProcess
from .store_checks import Key, Stored

_ASKED = 4


async def check_times(process: BrokerProcess, stored: Stored, random: Random) -> None:
    """Ask a broker for times in some partitions, of records and beside them."""
    keys = sorted(stored.times)
    for key in random.sample(keys, min(_ASKED, len(keys))):
        times = stored.times[key]
        time_us = random.choice([*times[-20:], min(times), max(times) + 1])
        time_us += random.choice([-1, 0, 0, 1])
        await _check(process, key, times, time_us)


async def _check(process: BrokerProcess, key: Key, times: list[int], time_us: int) -> None:
    async def start(core: BrokerCore) -> int:
        return (await core.end(*key)).start

    async def ask(core: BrokerCore) -> tuple[int, set[int]]:
        """Return what is found, and where the partition began before and afterwards."""
        before = await start(core)
        return await core.sequence_before(*key, time_us), {before, await start(core)}

    found, starts = await process.ask(ask, 60.0)
    wanted = {_before(times, time_us, x) for x in starts}
    if found not in wanted:
        raise Violation(
            f"the time {time_us} is found behind {found} in {key}, and is behind {wanted}"
        )


def _before(times: list[int], time_us: int, start: int) -> int:
    """Return what lies before the first time from one on, of what is left."""
    reached = (n for n, at_us in enumerate(times) if at_us >= time_us and n >= start)
    return next(reached, len(times))

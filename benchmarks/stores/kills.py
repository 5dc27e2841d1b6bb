"""How long a killed host is missed: processes over an event log, their leases in a store.

As in the benchmark ``failover``: expiration 3 s, balancing every 0.5 s; one kill each.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.failover import kill_and_wait
from benchmarks.processes import hosts_over

from .measured import Measured
from .places import Ports, Store

_RANGES = 8
_CHANGES = 150_000
_SECONDS_PER_BATCH = 0.1  # of 100 changes: 1000 a second of each range


async def measured(store: Store, ports: Ports) -> Sequence[Measured]:
    with TemporaryDirectory(prefix="bench-") as folder:
        leases = store.place("kills", Path(folder), ports)
        async with hosts_over(
            ranges=_RANGES, changes=_CHANGES, seconds=_SECONDS_PER_BATCH, leases=leases
        ) as hosts:
            await hosts.start("h0")
            await hosts.start("h1")
            owned = await hosts.until_even(_RANGES)
            await asyncio.sleep(0.5)
            waits = await kill_and_wait(hosts, "h0", owned["h0"])
    return [
        Measured(name="failover.first_range", value=min(waits), unit="s"),
        Measured(name="failover.last_range", value=max(waits), unit="s"),
    ]

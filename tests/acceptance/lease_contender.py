"""One process that wins leases, checkpoints and releases, until it is killed.

It reports every answer it got, one line at a time: what it says happened was stored.
"""

import asyncio
import os
import sys
from contextlib import AbstractAsyncContextManager
from random import Random

from changefeed.feeds.feed import Continuation
from changefeed.leases.addresses import open_container, open_stores
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseError
from changefeed.leases.lease import HostName, Incarnation


async def contend(host: HostName, addresses: list[str]) -> None:
    chance = Random(host)
    async with opened(addresses) as leases:
        while True:
            listed = chance.choice(list(await leases.list()))
            try:
                owned = await leases.acquire(listed.taken_by(host, Incarnation("1")))
                position = int(owned.continuation or "")
                report("won", owned.range_id, owned.epoch, position)
                for _ in range(chance.randrange(6)):
                    position += 1
                    owned = await leases.checkpoint(
                        owned.advanced_to(Continuation(str(position)))
                    )
                    report("at", owned.range_id, owned.epoch, position)
                    await asyncio.sleep(0)
                owned = await leases.replace(owned.released())
            except LeaseError:
                continue


def opened(addresses: list[str]) -> AbstractAsyncContextManager[LeaseContainer]:
    match addresses:
        case [one]:
            return open_container(one)
        case [ownership, checkpoints]:
            return open_stores(ownership, checkpoints)
    raise SystemExit("lease_contender HOST ADDRESS [ADDRESS]")


def report(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


if __name__ == "__main__":
    asyncio.run(contend(HostName(sys.argv[1]), sys.argv[2:]))

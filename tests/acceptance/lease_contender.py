"""One process that wins leases, checkpoints and releases, until it is killed.

It reports every answer it got, one line at a time: what it says happened was stored.
"""

import asyncio
import os
import sys
from random import Random

from changefeed.feeds.feed import Continuation
from changefeed.leases.addresses import open_stores
from changefeed.leases.errors import LeaseError
from changefeed.leases.lease import HostName, Incarnation


async def contend(host: HostName, ownership: str, checkpoints: str) -> None:
    chance = Random(host)
    async with open_stores(ownership, checkpoints) as leases:
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


def report(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


if __name__ == "__main__":
    asyncio.run(contend(HostName(sys.argv[1]), *sys.argv[2:]))

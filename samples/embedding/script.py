"""A host in a script of your own: ``python -m samples.embedding.script data/prices``.

Its leases are in a file, so several of these share the ranges, and one that starts again goes
on where it was. Ctrl-C cancels ``run``: the host finishes its batch, releases its leases, and
only then the script ends. Its log goes where ``logging`` is set up to go.
"""

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import suppress

from changefeed import (
    Change,
    Context,
    FeedSettings,
    HostSettings,
    LeaseSettings,
    Settings,
    open_host,
)


async def show(context: Context, changes: Sequence[Change]) -> None:
    for change in changes:
        print(f"{context.host} {change.key} {change.value()}", flush=True)


async def main(log: str, name: str) -> None:
    settings = Settings(
        host=HostSettings(name=name),
        feed=FeedSettings(address=f"eventlog:{log}"),
        leases=LeaseSettings(address=f"sqlite:{log}.leases"),
    )
    async with open_host(settings, show) as host:
        await host.run()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    with suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "script"))

"""A host whose lease writes are refused: what it delivers then may come twice."""

import asyncio

from changefeed.leases.memory import MemoryLeases
from changefeed.runtime.errors import StoreUnavailable
from tests.support import make
from tests.support.calls import Calls
from tests.support.proxies import proxied

PAGE = 10


REFUSED = dict.fromkeys(
    ("replace", "acquire", "checkpoint", "put_member", "list_fleet"),
    StoreUnavailable("503"),
)


async def test_its_heir_goes_on_after_what_it_could_checkpoint() -> None:
    leases, calls = MemoryLeases(), Calls()
    sections = {"feed": {"page_size": PAGE}}
    feed = make.memory_feed(1, 600)
    async with make.fleet(sections, feed=feed, container=leases, pace=0.1) as fleet:
        fleet.start("anna", container=proxied(leases, calls))
        await asyncio.sleep(15)
        calls.failing = {**REFUSED}
        await asyncio.sleep(5)
        fleet.start("bella")
        await fleet.caught_up()
        assert fleet.log.repeats <= 3 * PAGE
        assert len(fleet.log.times) == 600

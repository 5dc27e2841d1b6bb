"""How much a host says: a line for each lease at debug, one for each round at info."""

import asyncio

from changefeed.feeds.memory import MemoryFeed
from changefeed.leases.memory import MemoryLeases
from changefeed.testing.fleet import Fleet
from tests.support.logs import captured_logs


async def test_what_moves_in_a_round_is_one_line_at_info_and_each_lease_one_at_debug() -> None:
    with captured_logs("DEBUG") as logs:
        async with Fleet(MemoryFeed(12), MemoryLeases()) as fleet:
            fleet.start("a")
            await asyncio.sleep(20)
            acquired = [x for x in logs if x["event"] == "lease.acquired"]
            assert {x["log_level"] for x in acquired} == {"debug"}
            assert len(acquired) == 12
            rounds = [x for x in logs if x["event"] == "host.balanced"]
            last = rounds[-1]
            assert (last["owns"], last["of"], last["log_level"]) == (12, 12, "info")
            assert sum(x["acquired"] for x in rounds) == 12
            await asyncio.sleep(100)
            assert [x for x in logs if x["event"] == "host.balanced"] == rounds  # it rests

            fleet.start("b")
            await asyncio.sleep(60)
            parted = [x for x in logs if x["event"] == "host.balanced"][len(rounds) :]
            assert sum(x["released"] for x in parted) == sum(x["acquired"] for x in parted) == 6
            await fleet.stop("b")
            (stopped,) = [x for x in logs if x["event"] == "host.stopped"]
            assert (stopped["host"], stopped["released"]) == ("b", 6)

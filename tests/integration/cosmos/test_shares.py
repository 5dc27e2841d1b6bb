"""What a feed may take of its account, as the account sees it."""

from contextlib import AsyncExitStack, nullcontext
from typing import Any

import pytest

from changefeed import (
    Feed,
    FeedRefused,
    FeedSettings,
    FeedUnavailable,
    MemoryLeases,
    Settings,
    open_feed,
)
from changefeed.feeds.cosmos import client
from changefeed.host.shared import Process
from changefeed.host.wiring import guest_host
from tests.support.cosmos_feeds import CosmosWorld


async def test_requests_carry_the_share_that_the_address_gives_and_are_counted(
    world: CosmosWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[dict[str, str]] = []
    charged: list[float] = []
    send = client._Transport.send

    async def noting(self: Any, request: Any, **config: Any) -> Any:
        sent.append({k.lower(): v for k, v in request.headers.items()})
        answer = await send(self, request, **config)
        units = float(answer.headers["x-ms-request-charge"])
        charged.append(units * request.url.endswith("docs/"))
        return answer

    monkeypatch.setattr(client._Transport, "send", noting)
    await world.put("a")
    address = f"cosmos+{world.address}"
    async with open_feed(f"{address}?priority=low&throughput_bucket=2&max_ru=10000") as feed:
        (found,) = await feed.ranges()
        page = await feed.read(found, await feed.start(found, "beginning"), 10)
        assert [x.value()["id"] for x in page.changes] == ["a"]
        assert feed.request_units == pytest.approx(sum(charged))
    pages = [x for x in sent if "a-im" in x]
    assert {x["x-ms-cosmos-priority-level"] for x in pages} == {"Low"}
    assert {str(x["x-ms-cosmos-throughput-bucket"]) for x in pages} == {"2"}
    with pytest.raises(FeedRefused, match="max_ru=none"):
        async with open_feed(f"{address}?max_ru=none"):
            pass


async def test_two_processors_of_a_process_that_read_one_container_share_its_budget(
    world: CosmosWorld,
) -> None:
    async def read(feed: Feed) -> None:
        (found,) = await feed.ranges()
        await feed.read(found, await feed.start(found, "beginning"), 10)

    await world.put("a")
    address = f"cosmos+{world.address}?max_ru=0.01"
    settings, process = Settings(feed=FeedSettings(address=address)), Process()
    async with AsyncExitStack() as stack:
        first, second, apart = [
            await stack.enter_async_context(
                guest_host(
                    settings, print, leases=lambda: nullcontext(MemoryLeases()), process=x
                )
            )
            for x in (process, process, None)
        ]
        await read(first.feed)
        with pytest.raises(FeedUnavailable, match=r"max_ru=0\.01"):
            await read(second.feed)
        await read(apart.feed)

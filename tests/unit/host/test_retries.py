"""When a host asks again."""

from itertools import pairwise
from random import Random

import pytest

from changefeed.feeds.errors import FeedUnavailable
from changefeed.host.events import HostEvents
from changefeed.host.failures import Retrier
from changefeed.leases.lease import HostName
from tests.support.looking import now


async def test_it_asks_ever_later_and_never_sooner_than_the_other_side_wished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("changefeed.runtime.delays.JITTER", 0.0)
    answers = [None, None, None, 5.0, None]
    asked = list[float]()

    async def ask() -> str:
        asked.append(now())
        if answers:
            raise FeedUnavailable("away", retry_after=answers.pop(0))
        return "here"

    retrier = Retrier(HostEvents(HostName("a")), Random(1))
    assert await retrier.call("read", ask, longest_delay=1.0) == "here"
    waited = [round(y - x, 6) for x, y in pairwise(asked)]
    assert waited == [0.2, 0.4, 0.8, 6.0, 1.0]

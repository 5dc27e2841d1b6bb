"""Renewals of one lease, as the loop times them."""

import asyncio
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from changefeed.host.events import HostEvents
from changefeed.host.retries import Retrier
from changefeed.host.settings import Settings
from changefeed.host.workers.renewer import Renewer
from changefeed.leases.errors import LeaseLost
from changefeed.leases.lease import HostName, Lease
from tests.support import make
from tests.support.looking import now

if TYPE_CHECKING:
    from changefeed.host.workers.environment import WorkerEnvironment
    from changefeed.host.workers.owned_lease import OwnedLease

LEASE = make.lease("r0")
LESS_THAN_CLOCKS_TELL = 1e-15


class AtItsFence:
    """A lease whose time is over at the next tick of the clock, in a store that is away."""

    lost, doubted, lease, range_id = False, True, LEASE, LEASE.range_id
    time_left = LESS_THAN_CLOCKS_TELL

    def __init__(self) -> None:
        self._until = now()
        self._checks = 0

    async def renew(self, _: Callable[[Lease], Lease]) -> None:
        await asyncio.Event().wait()

    def check(self) -> None:
        self._checks += 1
        assert self._checks < 100, "it asks again and again, and no time passes"
        if now() > self._until:
            raise LeaseLost(LEASE, "it could not be renewed in time")


async def test_a_renewal_with_less_time_left_than_clocks_tell_ends() -> None:
    await asyncio.sleep(1000)  # what is added to a clock at 0 is never rounded away
    events = HostEvents(HostName("a"))
    environment = SimpleNamespace(
        settings=Settings.model_validate({"feed": {"address": "memory:1"}}),
        events=events,
        random=Random(0),
        retrier=Retrier(events, Random(0)),
        renew_each=lambda: True,
    )
    renewer = Renewer(
        cast("OwnedLease", AtItsFence()), cast("WorkerEnvironment", environment), lambda x: x
    )
    with pytest.raises(LeaseLost):
        await renewer.run()

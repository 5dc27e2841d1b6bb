"""What worlds of the simulation that balance by load have of it: settings, and wrong loads.

The observers of a world keep no host busy for long. So what hosts write as loads is made up
while things go wrong: that of a heavy range with some noise, another one each time, or
none at all (negative, infinite, not a number, missing). When all works again, it is measured.
"""

import math
from collections.abc import Mapping
from random import Random
from typing import Any, cast

from msgspec.structs import replace

from changefeed.leases.container import LeaseContainer
from changefeed.leases.lease import Lease
from changefeed.stores.store import CallLimits
from changefeed.testing.proxies import show_methods

_LIES = (None, math.nan, math.inf, -math.inf, -1.0, 0.0, 0.05, 2.0, 1e300)


class Loads:
    """Chooses by seed who balances by load, and what is written. ``fleet`` says how it is:
    all count, all by load, or each host as it likes.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random = Random(f"loads {seed}")
        self.fleet = random.choice(["count", "load", "load", "mixed"])
        self._made_up = random.choice(["measured", "heavy", "heavy", "shifting", "lies"])
        self.cooldown = random.choice([5.0, 20.0, 60.0])
        self.splits = False
        """Whether hosts that balance by load split hot ranges."""
        self._calm = False

    def settings_of(self, name: str) -> Mapping[str, object]:
        counts = self.fleet == "count"
        if self.fleet == "mixed":
            counts = Random(f"loads {self._seed} {name}").random() < 0.5
        if counts:
            return {"balance": "count"}
        return {"balance": "split" if self.splits else "load"}

    def calm(self) -> None:
        self._calm = True

    def through(self, container: LeaseContainer) -> LeaseContainer:
        """Let loads go through ``container`` that are made up."""
        return cast("LeaseContainer", _Through(container, self))

    def written(self, lease: Lease) -> Lease:
        if self._calm or lease.load is None or self._made_up == "measured":
            return lease
        return replace(lease, load=self._load(lease.range_id))

    def _load(self, name: str) -> float | None:
        if self._made_up == "lies":
            return self._random.choice(_LIES)
        if self._made_up == "shifting":
            return round(self._random.random() * 20) / 20
        heavy = Random(f"{self._seed} {name}").random() ** 3
        return round(max(0.0, heavy + self._random.gauss(0, 0.03)) * 20) / 20


class _Through:
    def __init__(self, container: LeaseContainer, loads: Loads) -> None:
        self._container = container
        self._loads = loads
        show_methods(self, container)

    def bounded(self, bounds: CallLimits) -> "_Through":
        return _Through(self._container.bounded(bounds), self._loads)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._container, name)

    async def replace(self, lease: Lease) -> Lease:
        return await self._container.replace(self._loads.written(lease))

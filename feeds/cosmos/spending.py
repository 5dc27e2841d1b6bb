"""How many request units a feed takes in a second: as its address says, and as it has done.

An answer says what its request has cost, so a request is paid for afterwards. One that is to
be sent waits until all before it are paid, each at what the last one did cost until its own
answer says better. So a large page is followed by a pause, and no second of the feed costs
more than its share but for what was under way.
"""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from typing import Any, Final, TypeAlias, TypeVar

from changefeed.feeds.cosmos.address import AddressWrong
from changefeed.feeds.errors import FeedUnavailable

T = TypeVar("T")
OPTIONS: Final = ("priority", "throughput_bucket", "max_ru", "regions")
_BUCKETS: Final = {str(x): x for x in range(1, 6)}
_MAX_WAIT: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientOptions:
    """How a feed asks its account, and how much of it, as its address says it."""

    priority: str | None = None
    """``low``: the account turns these requests away first, where it knows priorities."""
    throughput_bucket: int | None = None
    """One of the buckets that the account shares its throughput out by: 1 to 5."""
    max_ru: float = inf
    """Request units in a second, of all feeds of the container in one process."""
    regions: Sequence[str] = ()
    """Where it is read, first the region that is asked as long as it answers."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "ClientOptions":
        """Read the options of an address. Raise ``AddressWrong``."""
        return cls(
            priority=_one_of("priority", options, {"low": "Low", "high": "High"}),
            throughput_bucket=_one_of("throughput_bucket", options, _BUCKETS),
            max_ru=_units(options.get("max_ru")),
            regions=tuple(filter(None, map(str.strip, options.get("regions", "").split(",")))),
        )

    @property
    def client_arguments(self) -> dict[str, Any]:
        """The keyword arguments of a client, for all its requests."""
        given = {
            "priority": self.priority,
            "throughput_bucket": self.throughput_bucket,
            "preferred_locations": [*self.regions] or None,
        }
        return {name: x for name, x in given.items() if x is not None}

    def budget(self, where: str, budgets: "Budgets") -> "Budget":
        """Return what all feeds of the container at ``where`` with this share spend of."""
        return budgets.setdefault((where, self.max_ru), Budget(self.max_ru))


def _one_of(name: str, options: Mapping[str, str], known: Mapping[str, T]) -> T | None:
    given = options.get(name)
    if given is None or given in known:
        return None if given is None else known[given]
    raise AddressWrong(f"{name}={given} in the address: it may be {', '.join(known)}")


def _units(given: str | None) -> float:
    if given is None:
        return inf
    with suppress(ValueError):
        if 0 < (units := float(given)) < inf:
            return units
    raise AddressWrong(
        f"max_ru={given} in the address: write request units in a second, as 400"
    )


class Budget:
    """``most`` request units a second, of all feeds that spend of it."""

    def __init__(self, most: float = inf) -> None:
        self._most = most
        self._likely = 0.0
        self._paid_at = 0.0  # when all that was asked so far is paid, on the clock of the loop
        self._turn = asyncio.Lock()

    async def reserve(self) -> float:
        """Wait until it is time for a request; return what is put down for it.

        Raise ``FeedUnavailable`` where it is not time for longer than a reader should wait.
        """
        clock = asyncio.get_running_loop().time
        async with self._turn:
            while (seconds := self._paid_at - clock()) > 0:
                if seconds > _MAX_WAIT:
                    text = f"max_ru={self._most:g} of the feed is spent for {seconds:.0f} s"
                    raise FeedUnavailable(text, seconds)
                await asyncio.sleep(seconds)
            self._pay(self._likely)
            return self._likely

    def charged(self, units: float, reserved: float) -> None:
        """Pay for a request what it has cost, less what was put down for it."""
        self._likely = units
        self._pay(units - reserved)

    def _pay(self, units: float) -> None:
        now = asyncio.get_running_loop().time()
        self._paid_at = max(self._paid_at, now) + units / self._most


Budgets: TypeAlias = dict[tuple[str, float], Budget]
"""Those of a process: feeds of one container that may spend the same spend of one."""

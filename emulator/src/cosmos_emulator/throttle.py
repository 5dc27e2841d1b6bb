"""Throttling: a budget of requests or request units a second, and 429 beyond it.

A budget fills up evenly, to one second's worth at the most. A request is let in while
anything is left, and may overdraw it, as its charge is known only afterwards; the next
ones then wait until the debt is paid.
"""

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from cosmos_emulator.errors import THROTTLED, CosmosError, bad_request
from cosmos_emulator.json_values import JsonObject


class Limit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of two rates, for a container by its id, or for all of them together."""

    requests_per_second: float | None = None
    ru_per_second: float | None = None
    container: str | None = None

    @property
    def rate(self) -> float:
        return self.requests_per_second or self.ru_per_second or 0.0

    @property
    def counts(self) -> Literal["requests", "request units"]:
        return "requests" if self.requests_per_second is not None else "request units"


@dataclass(slots=True, kw_only=True)
class _Budget:
    limit: Limit
    left: float
    seen_at: float

    def fill(self, now: float) -> None:
        grown = self.left + (now - self.seen_at) * self.limit.rate
        self.left, self.seen_at = min(grown, max(1.0, self.limit.rate)), now


class Throttle:
    """The limits in force. Times are those of the event loop, in seconds."""

    def __init__(self) -> None:
        self._budgets: list[_Budget] = []
        self._refused = 0

    def set(self, body: JsonObject, now: float) -> None:
        """Add a limit, in the place of one for the same container and of the same kind."""
        try:
            limit = msgspec.convert(body, Limit)
        except msgspec.ValidationError as error:
            raise bad_request(f"This is no limit: {error}.") from error
        if (limit.requests_per_second is None) == (limit.ru_per_second is None) or (
            limit.rate <= 0
        ):
            raise bad_request("Say requests_per_second or ru_per_second, one, above zero.")
        self._budgets = [
            x
            for x in self._budgets
            if (x.limit.container, x.limit.counts) != (limit.container, limit.counts)
        ]
        self._budgets.append(_Budget(limit=limit, left=max(1.0, limit.rate), seen_at=now))

    def clear(self) -> None:
        self._budgets.clear()

    def report(self) -> dict[str, Any]:
        limits = [msgspec.to_builtins(x.limit) for x in self._budgets]
        return {"limits": limits, "refused": self._refused}

    def admit(self, container: str, now: float) -> None:
        """Raise 429 with the time until there is budget again."""
        for budget in self._of(container):
            budget.fill(now)
            # a request costs one; what it will cost in units is not known yet
            missing = (1.0 if budget.limit.counts == "requests" else 0.0) - budget.left
            if missing > 0 or budget.left <= 0:
                self._refused += 1
                raise CosmosError(
                    429,
                    f"Request rate is large: {budget.limit.rate:g} {budget.limit.counts} a "
                    f"second is the limit that was set. Wait, then send it again.",
                    THROTTLED,
                    retry_after_ms=max(1, round(1000 * missing / budget.limit.rate)),
                )

    def spend(self, container: str, charge: float) -> None:
        for budget in self._of(container):
            budget.left -= 1.0 if budget.limit.counts == "requests" else charge

    def _of(self, container: str) -> list[_Budget]:
        return [x for x in self._budgets if x.limit.container in {None, container}]

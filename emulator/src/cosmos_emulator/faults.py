"""Faults on demand: errors before and after a write took effect, drops, and delays.

A rule says which requests it strikes, when, and with what. Rules strike in the order in
which they were made, until their ``times`` are used up.
"""

import random
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from cosmos_emulator.address import OPERATIONS
from cosmos_emulator.errors import bad_request
from cosmos_emulator.json_values import JsonObject

WRITES: Final = frozenset(
    {"create_item", "upsert_item", "replace_item", "patch_item", "delete_item", "batch"}
    | {"delete_items_of_key"}
)
_READS: Final = frozenset({"read_item", "read_items", "query_items", "change_feed"})
_GROUPS: Final = {"*": OPERATIONS, "writes": WRITES, "reads": _READS}


_MAX_DELAY: Final = 600  # seconds


class Fault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A rule. Without ``times`` it strikes for ever; ``seconds`` are those of a delay.

    ``when`` is before the operation, or after it took effect: the client then never
    learns that its write was made. ``container`` is its id, ``range`` the id of a
    physical range, ``region`` a name; left out, every one is struck.
    """

    effect: Literal["error", "drop", "delay"]
    operation: str = "*"
    when: Literal["before", "after"] = "before"
    container: str | None = None
    range: str | None = None
    region: str | None = None
    status: int = 503
    substatus: int = 0
    retry_after_ms: int | None = None
    seconds: float = 0.0
    times: int | None = None
    probability: float = 1.0


def _check(fault: Fault) -> None:
    """Raise 400 for a fault that no request could meet, or no client understand."""
    for name, low, high in (
        ("status", 400, 599),
        ("probability", 0, 1),
        ("substatus", 0, 99_999),
        ("seconds", 0, _MAX_DELAY),
        ("retry_after_ms", 0, 1_000 * _MAX_DELAY),
        ("times", 1, 2**31),
    ):
        value = getattr(fault, name)
        if value is not None and not low <= value <= high:
            raise bad_request(f"{name} of a fault is {low} to {high}, not {value:g}.")


@dataclass(slots=True, kw_only=True)
class _Rule:
    fault: Fault
    left: int | None
    struck: int = 0
    operations: frozenset[str] = field(default_factory=frozenset)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a request is about, as far as faults distinguish requests."""

    operation: str
    region: str
    container: str | None = None
    range: str | None = None


class Faults:
    """The rules in force."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.Random(seed)  # noqa: S311 - chance, not secrecy
        self._rules: list[_Rule] = []

    def add(self, body: JsonObject) -> None:
        """Make a rule of a request's body; 400 with what is wrong with it."""
        try:
            fault = msgspec.convert(body, Fault)
        except msgspec.ValidationError as error:
            raise bad_request(f"This is no fault: {error}.") from error
        _check(fault)
        operations = _GROUPS.get(fault.operation, frozenset({fault.operation}))
        if not operations <= OPERATIONS:
            raise bad_request(
                f"There is no operation {fault.operation!r}; there are "
                f"{', '.join([*_GROUPS, *sorted(OPERATIONS)])}."
            )
        self._rules.append(_Rule(fault=fault, left=fault.times, operations=operations))

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._rules)

    def clear(self) -> None:
        self._rules.clear()

    def report(self) -> list[dict[str, Any]]:
        """Return every rule with how often it struck, for people and tests."""
        return [
            {**msgspec.to_builtins(x.fault), "left": x.left, "struck": x.struck}
            for x in self._rules
        ]

    def striking(self, target: Target, when: Literal["before", "after"]) -> list[Fault]:
        """Return the faults that strike a request now, and count them."""
        return [x.fault for x in self._rules if self._strikes(x, target, when)]

    def _strikes(self, rule: _Rule, target: Target, when: str) -> bool:
        fault = rule.fault
        fits = (
            fault.when == when
            and target.operation in rule.operations
            and fault.container in {None, target.container}
            and fault.range in {None, target.range}
            and fault.region in {None, target.region}
            and rule.left != 0
        )
        if not fits or self._random.random() >= fault.probability:
            return False
        rule.struck += 1
        if rule.left is not None:
            rule.left -= 1
        return True

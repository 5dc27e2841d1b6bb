"""What typed changes cost: decoded into a struct, beside ``change.value()`` of each."""

import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from changefeed.feeds.feed import Change, Operation, RangeId
from changefeed.observers.typed import decoder_of

from .result import Result, by_rounds

_CHANGES, _ROUNDS = 10_000, 15


class Order(msgspec.Struct):
    customer: str
    cents: int
    lines: list[str]


def measure() -> Sequence[Result]:
    rounds = [_round(_changes()) for _ in range(_ROUNDS)]
    return [
        by_rounds("typed", rounds, "value", "changes/s of CPU"),
        by_rounds("typed", rounds, "struct", "changes/s of CPU", against="value", goal=0.9),
    ]


def _observe(changes: Sequence[Change[Order]]) -> None: ...


def _changes() -> Sequence[Change]:
    body = msgspec.json.encode(
        {"customer": "ada", "cents": 1250, "lines": ["a", "b"], "note": "x" * 100}
    )
    return [
        Change(
            range_id=RangeId("r0"),
            sequence=n,
            key="ada",
            id=f"order-{n}",
            operation=Operation.INSERT,
            body=body,
            committed_us=n,
        )
        for n in range(_CHANGES)
    ]


def _round(changes: Sequence[Change]) -> Mapping[str, float]:
    decode = decoder_of(_observe, "observer")
    assert decode is not None, "it is annotated with a type"
    return {
        "value": _rate(lambda: [x.value() for x in changes]),
        "struct": _rate(lambda: [x.value() for x in decode(changes)]),
    }


def _rate(use: Callable[[], object]) -> float:
    began = time.process_time()
    use()
    return _CHANGES / (time.process_time() - began)

"""Durations and sizes as people write them: in flags, in settings, in addresses.

A duration is a number of seconds, or a number with a unit: ``500ms``, ``90s``, ``30m``,
``12h``, ``7d``. A size is a number of bytes, or a number with a unit of two to the power of
ten: ``64MiB``, ``64m`` and ``64M`` are the same.
"""

import math
import re
from collections.abc import Mapping
from typing import Final

_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTES: Final = {
    "": 1,
    "b": 1,
    **{f"{x}{y}": 2 ** (10 * n) for n, x in enumerate("kmgt", 1) for y in ("", "ib")},
}
_FORM: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([a-z]*)")


def seconds(text: str) -> float:
    """Return a duration in seconds. Raise ``ValueError`` with the forms it may have."""
    found = _amount(text, _SECONDS)
    if found is None:
        raise ValueError(
            f"{text!r} is not a duration: write seconds, or 500ms, 90s, 30m, 12h, 7d"
        )
    return found


def size(text: str) -> int:
    """Return a size in bytes. Raise ``ValueError`` with the forms it may have."""
    found = _amount(text, _BYTES)
    if found is None or not found.is_integer():
        raise ValueError(f"{text!r} is not a size: write bytes, or 64KiB, 64MiB, 20GiB, 20g")
    return int(found)


def _amount(text: str, units: Mapping[str, float]) -> float | None:
    found = _FORM.fullmatch(text.strip().lower())
    if found is None or found[2] not in units:
        return None
    amount = float(found[1]) * units[found[2]]
    assert math.isfinite(amount), "fifteen digits are finite"
    return amount


def counted(number: int, noun: str) -> str:
    """Return ``1 lease``, ``2 leases``; ``noun`` is one of which the plural ends in s."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"

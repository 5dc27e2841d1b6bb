"""What a range costs its owner: the numbers that are planned by.

A *load* is busy seconds in each second of reading and observing, smoothed. It is stored in
coarse steps, and only when it has left its step for good: so hosts that list the leases at
different moments plan from the same numbers. What is stored may still be wrong, of another
time or missing, and the plan has to live with it.
"""

STEP = 0.05
"""Loads are stored as multiples of it."""
MAX_LOAD = 16.0
"""One task reads a range and one observes it: no range can keep its owner busier."""
_LEAVES = 0.8  # of a step: a load between two steps stays where it was


def coarse(load: float, stored: float | None) -> float:
    """Return the step to store for a measured load, which is ``stored`` while that is near."""
    if stored is not None and abs(load - stored) < _LEAVES * STEP:
        return stored
    step = round(round(min(max(load, 0.0), MAX_LOAD) / STEP) * STEP, 2)
    assert 0.0 <= step <= MAX_LOAD, f"a load of {load} is stored as {step}"
    return step


def known(load: float | None) -> float | None:
    """Return a listed load within its bounds, ``None`` for what is no load at all."""
    if load is None or not 0.0 <= load < float("inf"):
        return None
    return min(load, MAX_LOAD)

"""A few seeds of a cluster. Many more: ``python -m tests.simulation.cluster``."""

import pytest

from .world import simulate

# What each of them found is fixed; the seed stays, so that it stays fixed.
REGRESSIONS = {
    25: "a wall clock that jumped made brokers forget their producers",
    31: "a time was searched for in what retention had taken, and called damage",
}


@pytest.mark.parametrize("seed", [*REGRESSIONS, *range(1_000, 1_006)], ids="seed-{}".format)
def test_nothing_acknowledged_is_lost_or_read_twice_whatever_goes_wrong(seed: int) -> None:
    simulate(seed)

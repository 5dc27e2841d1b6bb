"""A few seeds of a cluster. Many more: ``python -m tests.simulation.cluster``."""

import pytest

from .world import simulate


@pytest.mark.parametrize("seed", range(6), ids="seed-{}".format)
def test_nothing_acknowledged_is_lost_or_read_twice_whatever_goes_wrong(seed: int) -> None:
    simulate(seed)

"""A few seeds of a cluster. Many more: ``python -m tests.simulation --brokers``."""

import os

import pytest

from tests.support.processes import python

from .world import simulate

_TELL = """
import sys
from tests.simulation.cluster.world import simulate
print([simulate(int(seed)) for seed in sys.argv[1:]][-1])
"""


# In the last, one that thaws looks for the end of a row that retention has deleted.
@pytest.mark.parametrize("seed", [*range(6), 48913093], ids="seed-{}".format)
def test_nothing_acknowledged_is_lost_or_read_twice_whatever_goes_wrong(seed: int) -> None:
    simulate(seed)


def _told(*seeds: str, hash_seed: str) -> str:
    """Return what comes of the last of some seeds, in a process of its own."""
    return python(_TELL, *seeds, env={**os.environ, "PYTHONHASHSEED": hash_seed}).stdout


def test_a_seed_has_one_history_whatever_the_process_did_before() -> None:
    once = _told("7", hash_seed="1")
    assert "start broker-1" in once
    assert _told("5", "7", hash_seed="2") == once

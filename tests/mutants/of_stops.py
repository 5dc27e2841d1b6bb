"""Breaks of how a worker winds down: what it waits for, and what it stores at last."""

from .mutant import Mutant

_CUT_OFF = "tests/unit/host/workers/test_cut_off.py"

STOPS = (
    Mutant(
        name="who is cut off repeats what the policy had put off",
        file="host/workers/worker.py",
        before="        self._checkpoints.advance()  # what policy",
        after="        # what policy",
        rule=11,
        tests=(_CUT_OFF,),
    ),
    Mutant(
        name="who is cut off releases the lease without its last checkpoint",
        file="host/workers/worker.py",
        before="        unwritten = self._checkpoints.unwritten\n        release =",
        after="        unwritten = None\n        release =",
        rule=11,
        tests=(_CUT_OFF,),
    ),
)

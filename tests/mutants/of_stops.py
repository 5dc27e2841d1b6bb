"""Breaks of how a worker winds down: what it waits for, and what it stores at last."""

from .mutant import Mutant

_CHECKPOINTS = "tests/unit/host/workers/test_checkpointer.py"
_CUT_OFF = "tests/unit/host/workers/test_cut_off.py"
_DRAIN = "tests/unit/host/workers/test_drain.py"
_WORKER = "tests/unit/host/workers/test_worker.py"
_FAILING = "tests/unit/host/workers/test_failing_observers.py"

STOPS = (
    Mutant(
        name="an observer that only did not close has its work cut off",
        file="host/workers/pool.py",
        before="(self._cut_off if worker.in_hand else self._not_closed).add(range_id)",
        after="self._cut_off.add(range_id)",
        rule=11,
        tests=(_CUT_OFF,),
    ),
    Mutant(
        name="an observer that does not close stops in order",
        file="host/workers/pool.py",
        before="if any(found) else None",
        after="if any(found[:2]) else None",
        rule=11,
        tests=(_CUT_OFF,),
    ),
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
    Mutant(
        name="a stop gives observers no more time than a handoff",
        file="host/workers/worker.py",
        before="        within = None if stopping else self",
        after="        within = self",
        rule=11,
        tests=(_DRAIN,),
    ),
    Mutant(
        name="an observer does not hear that its range is drained",
        file="host/workers/delivery.py",
        before="        self._context.announce_handover()\n",
        after="",
        rule=4,
        tests=(_DRAIN,),
    ),
    Mutant(
        name="a handoff waits for acknowledgements past its deadline",
        file="host/workers/delivery.py",
        before="            async with self._drain.bounded():\n                while",
        after="            async with asyncio.timeout(None):\n                while",
        rule=4,
        tests=(_DRAIN,),
    ),
    Mutant(
        name="a close that hangs is waited for without end",
        file="host/workers/delivery.py",
        before="asyncio.timeout(_CLOSE_TIMEOUT)",
        after="asyncio.timeout(None)",
        rule=11,
        tests=(_DRAIN,),
    ),
    Mutant(
        name="a stop waits until the next observer would begin",
        file="host/workers/delivery.py",
        before="        await self._drain.sleep(rest)\n",
        after="        await asyncio.sleep(rest)\n",
        rule=11,
        tests=(_DRAIN,),
    ),
    Mutant(
        name="a range that the feed refuses is paused at its last checkpoint",
        file="host/workers/delivery.py",
        before="            except RangeRefused as refused:\n"
        "                self._checkpoints.advance()\n",
        after="            except RangeRefused as refused:\n",
        rule=12,
        tests=(_FAILING,),
    ),
    Mutant(
        name="what the policy has put off is not written at rest either",
        file="host/workers/delivery.py",
        before="            self._events.health.caught_up(self._owned.range_id)\n"
        "        self._checkpoints.advance()\n",
        after="            self._events.health.caught_up(self._owned.range_id)\n",
        rule=12,
        tests=(_WORKER,),
    ),
    Mutant(
        name="a pause waits for no acknowledgements",
        file="host/workers/delivery.py",
        before="                while self._acknowledgements.unacknowledged:\n",
        after="                paused = self._drain.reason is CloseReason.PAUSED\n"
        "                while self._acknowledgements.unacknowledged and not paused:\n",
        rule=4,
        tests=(_DRAIN,),
    ),
    Mutant(
        name="the writer of checkpoints takes no rest",
        file="host/workers/checkpointer.py",
        before="            await self._rest(_REST * (self._clock() - began))\n",
        after="",
        rule=0,
        tests=(_CHECKPOINTS,),
    ),
    Mutant(
        name="who waits for a checkpoint waits for the rest before it",
        file="host/workers/checkpointer.py",
        before="        while self._written < number:\n            self._urgent.set()\n",
        after="        while self._written < number:\n",
        rule=0,
        tests=(_CHECKPOINTS,),
    ),
)

"""Breaks of what others see of an observer that fails or does not come back."""

from .mutant import Mutant

_TROUBLE = "tests/unit/host/workers/test_trouble_in_leases.py"
_HEALTH = "tests/unit/leases/test_health.py"
_PROBLEMS = "tests/unit/host/test_problems.py"

HEALTH = (
    Mutant(
        name="a trouble waits for the next renewal",
        file="host/workers/worker.py",
        before="        if not may_be_early:\n",
        after="        if may_be_early or not may_be_early:\n",
        rule=0,
        tests=(_TROUBLE,),
    ),
    Mutant(
        name="each trouble is an early renewal",
        file="host/workers/worker.py",
        before="(interval, may_be_early=not early)",
        after="(interval, may_be_early=True)",
        rule=0,
        tests=(_TROUBLE,),
    ),
    Mutant(
        name="what fails once is written at once",
        file="host/workers/worker.py",
        before="                    await asyncio.sleep(_MOMENT)\n",
        after="",
        rule=0,
        tests=(_TROUBLE,),
    ),
    Mutant(
        name="a released lease forgets what failed",
        file="host/workers/worker.py",
        before="lambda x: end(self._with_health(x))",
        after="lambda x: end(x.with_health(self.lease.health.caught_up()))",
        rule=0,
        tests=(_TROUBLE, _PROBLEMS),
    ),
    Mutant(
        name="a new owner begins as if nothing had failed",
        file="host/events.py",
        before="        self.health.begin(lease.range_id, lease.health)\n",
        after="",
        rule=0,
        tests=(_TROUBLE,),
    ),
    Mutant(
        name="an attempt that follows others has no time of its own",
        file="host/workers/lease_gate.py",
        before="        self._watch.attempt()\n",
        after="",
        rule=0,
        tests=(_TROUBLE,),
    ),
    Mutant(
        name="the rest before an attempt counts as a call",
        file="host/workers/lease_gate.py",
        before="        self._watch.rest()\n",
        after="",
        rule=0,
        tests=(_TROUBLE,),
    ),
    Mutant(
        name="a call that was cut off has come back",
        file="host/workers/call_watch.py",
        before="            self.rest()\n        self._returned()",
        after="            self.rest()\n            self._returned()",
        rule=0,
        tests=(_TROUBLE,),
    ),
    Mutant(
        name="an observer that acknowledges nothing is not watched",
        file="host/workers/delivery.py",
        before="            with self._watch.watching():\n                await self._context",
        after="            if self._drain.reason is None:\n                await self._context",
        rule=0,
        tests=(_TROUBLE,),
    ),
    Mutant(
        name="an observer that could not open fails until the next change",
        file="host/workers/delivery.py",
        before="            self._events.health.caught_up(self._owned.range_id)\n",
        after="",
        rule=0,
        tests=(_TROUBLE,),
    ),
    Mutant(
        name="the next owner is stuck in a call of the last one",
        file="leases/lease.py",
        before="            health=self.health.returned(),\n",
        after="",
        rule=0,
        tests=("tests/unit/leases/test_lease.py",),
    ),
    Mutant(
        name="each failure is the first",
        file="leases/health.py",
        before="since = at if self.failing_since is None else self.failing_since",
        after="since = at",
        rule=0,
        tests=(_HEALTH,),
    ),
    Mutant(
        name="a clock that is a little behind makes owners expired",
        file="host/snapshot.py",
        before="self._settings.leases.expiration + self._settings.leases.max_clock_skew",
        after="0.0",
        rule=0,
        tests=(_PROBLEMS,),
    ),
    Mutant(
        name="a child that waits for its parent is unowned",
        file="host/problems.py",
        before="elif lease.owner is None and may_be_owned:",
        after="elif lease.owner is None:",
        rule=0,
        tests=(_PROBLEMS,),
    ),
)

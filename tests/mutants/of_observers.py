"""Breaks of the wrappers around the user's observer."""

from .mutant import Mutant

_LETTERS = "tests/contract/test_dead_letters_contract.py"
_ISOLATING = "tests/unit/observers/middleware/test_poison.py"
_BY_KEY = "tests/unit/observers/middleware/test_concurrency.py"
_RETRYING = "tests/unit/observers/middleware/test_retry.py"
_FAILING = "tests/unit/host/workers/test_failing_observers.py"

OBSERVERS = (
    Mutant(
        name="the gate does not ask before a call",
        file="observers/middleware/fence.py",
        before="        self._gate.check()\n        await self._observer.process",
        after="        await self._observer.process",
        rule=5,
        tests=("tests/unit/host/workers/test_worker.py",),
    ),
    Mutant(
        name="what was decided is tried again",
        file="observers/middleware/retry.py",
        before="return isinstance(error, Exception) and not isinstance(error, ObserverError)",
        after="return isinstance(error, Exception)",
        rule=10,
        tests=(_RETRYING,),
    ),
    Mutant(
        name="a cancellation is tried again",
        file="observers/middleware/retry.py",
        before="return isinstance(error, Exception) and not isinstance(error, ObserverError)",
        after="return not isinstance(error, ObserverError)",
        rule=11,
        tests=(_RETRYING,),
    ),
    Mutant(
        name="attempts without a limit",
        file="observers/middleware/retry.py",
        before="stop=tenacity.stop_never if limit is None else",
        after="stop=tenacity.stop_never if limit else",
        rule=10,
        tests=(_RETRYING,),
    ),
    Mutant(
        name="delays that do not grow",
        file="observers/middleware/retry.py",
        before="            exp_base=settings.multiplier,\n",
        after="            exp_base=1,\n",
        rule=10,
        tests=(_RETRYING,),
    ),
    Mutant(
        name="an outage is taken for poison",
        file="observers/middleware/poison.py",
        before="        if others:\n            return Verdict.OUTAGE\n",
        after="        if others:\n            return Verdict.POISON\n",
        rule=10,
        tests=(_ISOLATING,),
    ),
    Mutant(
        name="poison counts as done before it is put aside",
        file="observers/middleware/poison.py",
        before="        try:\n            async with asyncio.timeout(_PUT_TIMEOUT):",
        after="        context.acknowledge(change)\n"
        "        try:\n            async with asyncio.timeout(_PUT_TIMEOUT):",
        rule=12,
        tests=(_ISOLATING,),
    ),
    Mutant(
        name="what cannot be put aside is dropped",
        file="observers/middleware/poison.py",
        before="            raise _failed_on(change, failed, reason) from error\n"
        "        context.acknowledge(change)\n",
        after="            del error\n        context.acknowledge(change)\n",
        rule=12,
        tests=(_ISOLATING,),
    ),
    Mutant(
        name="a change of the same key is tried before its turn",
        file="observers/middleware/poison.py",
        before="    firsts.pop(change.key, None)\n",
        after="",
        rule=9,
        tests=(_ISOLATING,),
    ),
    Mutant(
        name="a second change is put aside on suspicion",
        file="observers/middleware/poison.py",
        before="        if self._suspicion.open:\n            return Verdict.OUTAGE\n",
        after="",
        rule=10,
        tests=(_ISOLATING, _FAILING),
    ),
    Mutant(
        name="the second half before the first",
        file="observers/middleware/poison.py",
        before="rest.extendleft((piece[half:], piece[:half]))",
        after="rest.extendleft((piece[:half], piece[half:]))",
        rule=9,
        tests=(_ISOLATING,),
    ),
    Mutant(
        name="an error in mid-handoff is taken for poison",
        file="observers/middleware/poison.py",
        before="            if context.handing_over:\n                raise\n",
        after="",
        rule=10,
        tests=(_ISOLATING, _FAILING),
    ),
    Mutant(
        name="the changes of one key in several lanes",
        file="observers/middleware/concurrency.py",
        before="        shares[lane_of[change.key]].append(change)\n",
        after="        shares[change.sequence % lanes].append(change)\n",
        rule=9,
        tests=(_BY_KEY,),
    ),
    Mutant(
        name="with manual checkpoints, a key changes its lane",
        file="observers/middleware/concurrency.py",
        before="spread = spread_always_alike if self._manual else spread_evenly",
        after="spread = spread_evenly",
        rule=9,
        tests=(_BY_KEY,),
    ),
    Mutant(
        name="no barrier at the end of a batch",
        file="observers/middleware/concurrency.py",
        before="    tasks = [asyncio.create_task(x) for x in calls]\n    try:\n"
        "        await asyncio.wait(tasks)\n",
        after="    tasks = [asyncio.create_task(x) for x in calls]\n    try:\n"
        "        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)\n"
        "        tasks = [x for x in tasks if x.done()]\n",
        rule=9,
        tests=(_BY_KEY,),
    ),
    Mutant(
        name="a lane checkpoints what is another's",
        file="observers/middleware/concurrency.py",
        before="            self._context.acknowledge(one)\n",
        after="            self._context.checkpoint(one)\n",
        rule=12,
        tests=(_BY_KEY,),
    ),
    Mutant(
        name="lanes go on though one has failed",
        file="observers/middleware/concurrency.py",
        before="            if self._failing:\n                return\n",
        after="",
        rule=10,
        tests=(_BY_KEY,),
    ),
    Mutant(
        name="a call that cannot be ended is taken for a failed one",
        file="observers/middleware/timeout.py",
        before="            raise ObserverStuck(context.range.id, name, self._seconds + "
        "self._grace)\n",
        after="            raise ObserverTimedOut(name, self._seconds)\n",
        rule=8,
        tests=("tests/unit/observers/middleware/test_timeout.py",),
    ),
    Mutant(
        name="letters of two feeds have one id",
        file="observers/dead_letters/letter.py",
        before='return LetterId(f"{mark}:{name}")',
        after="return LetterId(name)",
        rule=12,
        tests=(_LETTERS,),
    ),
    Mutant(
        name="another change under the id of a letter is swallowed",
        file="observers/dead_letters/letter.py",
        before="    if (kept.feed, kept.change) != (letter.feed, letter.change):",
        after="    if kept.feed != letter.feed:",
        rule=12,
        tests=(_LETTERS,),
    ),
    Mutant(
        name="a change whose letter is refused is skipped",
        file="observers/middleware/poison.py",
        before="except (OSError, TimeoutError, LetterConflict) as error:",
        after="except LetterConflict: pass\n        except (OSError, TimeoutError) as error:",
        rule=10,
        tests=(_ISOLATING,),
    ),
)

"""Breaks of how processes are asked to stop, and of who starts them again."""

from .mutant import Mutant

_SIGNALS = "tests/unit/runtime/test_signals.py"

SIGNALS = (
    Mutant(
        name="a hang-up ends commands as a crash would",
        file="runtime/signals.py",
        before="        found.append(signal.SIGHUP)\n",
        after="        pass\n",
        rule=11,
        tests=(_SIGNALS,),
    ),
    Mutant(
        name="a hang-up that was to be ignored ends commands",
        file="runtime/signals.py",
        before="if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:",
        after="if signal.getsignal(signal.SIGHUP) is not None:",
        rule=11,
        tests=(_SIGNALS,),
    ),
    Mutant(
        name="what runs on hears no hang-up",
        file="runtime/signals.py",
        before="asyncio.get_running_loop(), stop_signals()\n",
        after="asyncio.get_running_loop(), stop_signals()[:2]\n",
        rule=11,
        tests=(_SIGNALS,),
    ),
    Mutant(
        name="what waits for a store when it starts hears no signal",
        file="runtime/shutdown.py",
        before="self._stop: Callable[[], object] = task.cancel\n",
        after="self._stop: Callable[[], object] = task.done\n",
        rule=11,
        tests=(_SIGNALS,),
    ),
    Mutant(
        name="a signal cancels what serves",
        file="runtime/shutdown.py",
        before="        self.tell(heard.set)\n",
        after="",
        rule=11,
        tests=(_SIGNALS,),
    ),
)

"""Breaks of how processes are asked to stop, and of who starts them again."""

from .mutant import Mutant

_SIGNALS = "tests/unit/runtime/test_signals.py"
_HOSTS = "tests/unit/cli/test_hosts.py"
_SUPERVISOR = "tests/unit/host/test_supervisor.py"

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
    Mutant(
        name="the supervisor of hosts hears no hang-up",
        file="cli/children.py",
        before="    with on_stop_signals(supervisor.stop):\n",
        after="    import signal\n\n    signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "    with on_stop_signals(supervisor.stop):\n",
        rule=11,
        tests=(_HOSTS,),
    ),
    Mutant(
        name="a child that is started again waits for its own dead",
        file="cli/hosts.py",
        before="""        f"--set=host.replaces={','.join(child.dead)}",\n""",
        after="",
        rule=2,
        tests=(_HOSTS,),
    ),
    Mutant(
        name="a child that dies again and again has an ever longer command line",
        file="host/supervisor.py",
        before="[-_REMEMBERED:]",
        after="",
        rule=2,
        tests=(_SUPERVISOR,),
    ),
    Mutant(
        name="a child that dies before it joins forgets the one that had the leases",
        file="host/supervisor.py",
        before="_REMEMBERED = 10",
        after="_REMEMBERED = 2",
        rule=2,
        tests=(_SUPERVISOR,),
    ),
)

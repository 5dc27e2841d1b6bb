"""One process: a host of each processor, logs, telemetry, signals, web endpoints, and an end in
time.

What there is once in a process is shared: the port, the registry of metrics, the signals, the
watchdog, and the turn to deliver a change with care. All hosts stop within one
``host.stop_timeout``. The first that fails stops the others, and what it failed of is raised.
"""

import asyncio
import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial

from changefeed.host.child_start import ChildStart
from changefeed.host.host import Host
from changefeed.host.settings import Settings, settings_of_process
from changefeed.host.shared import Process
from changefeed.host.web import listening_socket, serving_soon, url_of
from changefeed.host.wiring import find_observer, wire_host
from changefeed.observers.observer import ObserverFactory
from changefeed.runtime.errors import UserError
from changefeed.runtime.exit_codes import FAILED, USER_ERROR
from changefeed.runtime.garbage import freeze_startup_objects, keep_freed_buffers
from changefeed.runtime.linked_tasks import Job, LinkedTasks, path_of
from changefeed.runtime.logs import get_logger, set_up_logs
from changefeed.runtime.main_task import run_main_task
from changefeed.runtime.shutdown import StopSignals, exit_after
from changefeed.runtime.telemetry import Telemetry, telemetry
from changefeed.runtime.watchdog import Watchdog

_LAST_THREADS = 5.0
"""How long threads of user code may go on after the hosts have stopped, in seconds."""

_log = get_logger()


def run_hosts(processors: Mapping[str, Settings], *, stop_at_eof: bool = False) -> None:
    """Be a host of each processor until asked to stop. Returns after an orderly stop; see
    ``Host.run``.

    From then on, the process ends soon, whatever threads are still running in it. With
    ``stop_at_eof`` the end of standard input is a signal to stop. Raise
    ``UserError`` for what a person has to change, before anything else.
    """
    code = FAILED
    runner = asyncio.Runner()
    settings = settings_of_process(processors)
    try:
        with telemetry("changefeed", settings.host.name, os.environ) as counting:
            set_up_logs(settings.log, counting.log_handlers)
            keep_freed_buffers()
            makes = {name: find_observer(x.observer) for name, x in processors.items()}
            main = _be_hosts(processors, makes, counting, stop_at_eof=stop_at_eof)
            run_main_task(runner, main)
        code = 0
    except asyncio.CancelledError:
        code = 0
        _log.info("host.stopped", reason="asked to, before it had started")
    except UserError:
        code = USER_ERROR
        raise
    finally:
        exit_after(_LAST_THREADS, code)
        runner.close()


async def _be_hosts(
    processors: Mapping[str, Settings],
    makes: Mapping[str, ObserverFactory],
    counting: Telemetry,
    *,
    stop_at_eof: bool,
) -> None:
    settings = settings_of_process(processors)
    suspect = f"observer {' or '.join(str(x.observer.name) for x in processors.values())}"
    signals = StopSignals(budget=settings.host.stop_timeout)
    hosts = _Hosts(processors)
    async with AsyncExitStack() as stack:
        stack.callback(_leave_threads_alone)
        stack.enter_context(signals.installed(suspect))
        if stop_at_eof:
            stack.enter_context(signals.end_of(sys.stdin))
        address = ""
        if settings.web.port != "off":
            _ = settings.web.secret  # what is wrong with it is said before anything is opened
            listening = stack.enter_context(listening_socket(settings.web))
            address = url_of(listening)

            def serve() -> AbstractAsyncContextManager[None]:
                from changefeed.host.endpoints import serving_hosts  # noqa: PLC0415 - see web.py

                name, registry = settings.host.name, counting.registry
                return serving_hosts(listening, name, registry, makes, hosts.opened)

            await stack.enter_async_context(serving_soon(serve, hosts.stop))
            _log.info("web.listening", address=address)
        stack.enter_context(hosts.watchdog.installed())
        signals.on_stop(hosts.stop)
        start, process = ChildStart.of(settings.host.name, os.environ), Process()

        async def be_host(name: str) -> None:
            async with wire_host(
                processors[name],
                makes[name],
                meters=counting.meters,
                registry=counting.registry,
                tracers=counting.tracers,
                address=address and f"{address}{path_of(name)}",
                start=start.of_processor(name),
                processor=name,
                process=process,
            ) as host:
                await hosts.run(name, host)

        await hosts.until_all_end({name: partial(be_host, name) for name in processors})


class _Hosts:
    """The hosts of a process by their processors, from when each is open."""

    def __init__(self, processors: Mapping[str, Settings]) -> None:
        expiration = min(x.leases.expiration for x in processors.values())
        self.watchdog = Watchdog(expiration, self._in_hand)
        self.opened = dict[str, Host]()
        self._tasks = LinkedTasks()
        self._watching: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Ask all to stop in order; asked again, to stop at once. Returns immediately."""
        self._tasks.stop()

    async def run(self, name: str, host: Host) -> None:
        """Run the host of a processor, which is open now."""
        self.opened[name] = host
        if self._watching is None:
            self._watching = asyncio.create_task(self.watchdog.run())
        if self._tasks.opened(name, host.stop):
            freeze_startup_objects()
        await host.run()

    async def until_all_end(self, jobs: Mapping[str, Job]) -> None:
        """Run the job of each processor, which calls ``run``; see ``LinkedTasks.run``."""
        try:
            await self._tasks.run(jobs)
        finally:
            if self._watching is not None:
                self._watching.cancel()

    def _in_hand(self) -> Mapping[str, str]:
        return {
            f"{name}: {found}" if name else str(found): position
            for name, host in self.opened.items()
            for found, position in host.in_hand.items()
        }


def _leave_threads_alone() -> None:
    """Let the loop wait at its end for an executor without threads, instead of its own."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))

"""One host as a process: logs, telemetry, signals, web endpoints, and an end in time."""

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

from changefeed.host.child_start import ChildStart
from changefeed.host.endpoints import Answers, application
from changefeed.host.page.access import token_of
from changefeed.host.settings import Settings
from changefeed.host.web import listening_socket, url_of
from changefeed.host.wiring import find_observer, wire_host
from changefeed.observers.observer import ObserverFactory
from changefeed.runtime.errors import UserError
from changefeed.runtime.exit_codes import FAILED, USER_ERROR
from changefeed.runtime.garbage import freeze_startup_objects
from changefeed.runtime.logs import get_logger, set_up_logs
from changefeed.runtime.main_task import run_main_task
from changefeed.runtime.shutdown import StopSignals, exit_after
from changefeed.runtime.telemetry import Telemetry, telemetry
from changefeed.runtime.watchdog import Watchdog
from changefeed.runtime.web_server import WebLimits, serving

_LAST_THREADS = 5.0
"""How long threads of user code may go on after the host has stopped, in seconds."""

_log = get_logger()


def run_host(settings: Settings, *, stop_at_eof: bool = False) -> None:
    """Be a host until asked to stop. Returns after an orderly stop; see ``Host.run``.

    From then on, the process ends soon, whatever threads are still running in it. With
    ``stop_at_eof`` the end of standard input is a signal to stop. Raise
    ``UserError`` for what a person has to change, before anything else.
    """
    code = FAILED
    runner = asyncio.Runner()
    try:
        with telemetry("changefeed", settings.host.name, os.environ) as counting:
            set_up_logs(settings.log, counting.log_handlers)
            make = find_observer(settings.observer)
            main = _be_host(settings, make, counting, stop_at_eof=stop_at_eof)
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


async def _be_host(
    settings: Settings, make: ObserverFactory, counting: Telemetry, *, stop_at_eof: bool
) -> None:
    signals = StopSignals(budget=settings.host.stop_timeout)
    answers = Answers(settings.host.name, counting.registry, make_observer=make)
    async with AsyncExitStack() as stack:
        stack.callback(_leave_threads_alone)
        stack.enter_context(signals.heard(f"observer {settings.observer.name}"))
        if stop_at_eof:
            stack.enter_context(signals.end_of(sys.stdin))
        address = ""
        if settings.web.port != "off":
            listening = stack.enter_context(listening_socket(settings.web))
            token_of(settings.web)  # what is wrong with it is said at once
            address = url_of(listening)
            app = application(answers)
            await stack.enter_async_context(serving(app, WebLimits(), listening))
            _log.info("web.listening", address=address)
        host = await stack.enter_async_context(
            wire_host(
                settings,
                make,
                meters=counting.meters,
                registry=counting.registry,
                tracers=counting.tracers,
                address=address,
                start=ChildStart.of(settings.host.name, os.environ),
            )
        )
        answers.host = host
        signals.tell(host.stop)
        freeze_startup_objects()
        watchdog = Watchdog(settings.leases.expiration, lambda: host.in_hand)
        with watchdog.heard():
            watching = asyncio.create_task(watchdog.run())
            try:
                await host.run()
            finally:
                watching.cancel()


def _leave_threads_alone() -> None:
    """Let the loop wait at its end for an executor without threads, instead of its own."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))

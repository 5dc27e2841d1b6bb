"""One broker as a process: logs, telemetry, signals, its door, and an end in order."""

import asyncio
import os
import sys
from contextlib import nullcontext
from dataclasses import replace

from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.metered_store import MeteredStore
from changefeed.log.brokers.metrics import BrokerMetrics, CoreGauges
from changefeed.log.brokers.pings import Pings
from changefeed.log.brokers.run_core import leave, open_core
from changefeed.log.brokers.server import LIMITS, BrokerServer
from changefeed.log.brokers.settings import BrokerSettings
from changefeed.log.client.access import BrokerAccess
from changefeed.log.client.connection import BrokerConnection
from changefeed.log.stores.addresses import open_store
from changefeed.runtime.errors import StoreUnavailable
from changefeed.runtime.garbage import freeze_startup_objects
from changefeed.runtime.listening import address_of, take_port
from changefeed.runtime.logs import get_logger, set_up_logs
from changefeed.runtime.scrape import Scrape
from changefeed.runtime.shutdown import StopSignals
from changefeed.runtime.stop import Stop
from changefeed.runtime.telemetry import Telemetry, telemetry
from changefeed.runtime.web_server import serving

_SHOWN_EVERY = 1.0
_STORE_AWAY = 3.0
"""A request that fails now and then is tried again, and is no reason to send clients away."""

_log = get_logger()


def run_broker(settings: BrokerSettings, *, stop_at_eof: bool = False) -> None:
    """Be a broker until asked to stop; returns after an orderly stop.

    SIGTERM, SIGINT and SIGHUP ask for one, so that others take over before this one goes; a
    second one ends it at once, as a crash would. With ``stop_at_eof`` so does the end of
    standard input. Raise ``UserError`` for what a person has to change first.
    """
    with telemetry("changefeed-broker", settings.broker.name, os.environ) as counting:
        set_up_logs(settings.log, counting.log_handlers)
        try:
            asyncio.run(_be_broker(settings, counting, stop_at_eof=stop_at_eof))
        except asyncio.CancelledError:  # asked to, before it had begun
            _log.info("broker.left", name=settings.broker.name)


async def _be_broker(
    settings: BrokerSettings, counting: Telemetry, *, stop_at_eof: bool
) -> None:
    tls, token = settings.web.tls, settings.web.secret
    store = MeteredStore(open_store(settings.broker.cluster), counting.meters)
    signals, stop = StopSignals(budget=settings.broker.stop_timeout), Stop()
    ending = signals.end_of(sys.stdin) if stop_at_eof else nullcontext()
    at = settings.web.bind, settings.web.port, LIMITS.backlog
    with signals.installed(), ending, take_port(*at) as listening:
        address = settings.web.advertise or address_of(listening)
        access = replace(BrokerAccess.of_environment(), token=token)
        async with (
            BrokerConnection.open(access, over_tls=tls is not None) as connection,
            open_core(
                store,
                settings.broker.name,
                address=address,
                settings=settings.core,
                ping=Pings(connection, "http" if tls is None else "https"),
            ) as core,
        ):
            signals.on_stop(stop.request)
            showing = asyncio.create_task(_show(core, CoreGauges(counting.meters)))
            server = BrokerServer(
                core,
                BrokerMetrics(counting.meters),
                Scrape(counting.registry),
                token=token,
                problems=lambda: problems_of(core, store),
            )
            async with serving(server.application(), LIMITS, listening, tls=tls):
                freeze_startup_objects()
                _log.info("web.listening", address=address, name=core.name)
                await stop.requested.wait()
                await _leave(core, stop, settings.broker.stop_timeout)
            showing.cancel()


async def _show(core: BrokerCore, gauges: CoreGauges) -> None:
    while True:
        gauges.show(core.status())
        await asyncio.sleep(_SHOWN_EVERY)


async def _leave(core: BrokerCore, stop: Stop, patience: float) -> None:
    """Hand over, and answer meanwhile; not for longer than ``patience`` seconds."""
    _log.info("broker.leaving", name=core.name)
    leaving = asyncio.create_task(leave(core))
    at_once = asyncio.create_task(stop.at_once.wait())
    done, _ = await asyncio.wait(
        {leaving, at_once}, timeout=patience, return_when=asyncio.FIRST_COMPLETED
    )
    for task in (leaving, at_once):
        task.cancel()
    if leaving in done:
        leaving.result()
        _log.info("broker.left", name=core.name)
    else:
        _log.warning(
            "broker.left", name=core.name, advice="at once: others take over when it expires"
        )


def problems_of(core: BrokerCore, store: MeteredStore) -> list[str]:
    """Return why a broker is not ready, and what its store says if that is why."""
    found = []
    trouble = store.trouble
    if trouble is not None and trouble[0] >= _STORE_AWAY:
        seconds, error = trouble
        found.append(f"no request to the store has succeeded for {seconds:.0f} s: {error}")
    try:
        core.check_sight()
    except StoreUnavailable as error:
        found.append(str(error))
    found += [f"it fails to {what}: {why}" for what, why in core.failing.items()]
    if not found and not core.status().writing:
        found.append(
            "it takes no records: it has no partitions in the newest era yet, or any more"
        )
    return found

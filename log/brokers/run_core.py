"""Running a broker's core: its loops, its start under a name, and how it leaves."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from changefeed.feeds.errors import FeedUnavailable, RangeDamaged
from changefeed.log.brokers.core import BrokerCore
from changefeed.log.brokers.members import Heartbeat, Ping
from changefeed.log.catalog.catalog_store import open_cluster
from changefeed.log.catalog.names import check_name
from changefeed.log.catalog.transitions import without_members
from changefeed.log.core_settings import CoreSettings
from changefeed.log.errors import Damaged
from changefeed.log.stores.store import ObjectStore
from changefeed.runtime.clock import elapsed_time, wall_clock_us
from changefeed.runtime.errors import NameTaken, StoreError
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)

Act = Callable[[], Awaitable[None]]

_FIRST_PAUSE, _MAX_PAUSE = 0.5, 30.0
"""Before a loop that failed is tried again, beside its usual rest, in seconds."""


async def no_answer(address: str, _: Heartbeat) -> Heartbeat:
    """Ping nobody."""
    raise FeedUnavailable(f"there is no way to a broker at {address!r}")


@asynccontextmanager
async def open_core(
    store: ObjectStore,
    name: str,
    *,
    address: str = "",
    settings: CoreSettings | None = None,
    ping: Ping = no_answer,
    clock: Callable[[], float] = elapsed_time,
    wall_us: Callable[[], int] = wall_clock_us,
) -> AsyncIterator[BrokerCore]:
    """Run a broker over a store until the block is left.

    ``address`` (``host:port``) is where clients reach it, and other brokers by ``ping``: what
    they send goes to ``BrokerCore.presence``. Where no ping arrives, brokers find each other in
    the store. The cluster is created where there is none.
    Leaving the block stops at once, as a crash would, unless ``leave`` was awaited.
    What fails at the start is raised. Later a loop that fails stops no other: it is tried
    again, and ``BrokerCore.failing`` says why it failed. Raise ``NameTaken`` if a living
    broker has the name, also later: then inside an exception group.
    """
    settings = settings or CoreSettings()
    heartbeat = Heartbeat(
        name=check_name(name, "broker"), incarnation=uuid.uuid4().hex, beat=0, address=address
    )
    cluster = await open_cluster(store)
    core = BrokerCore(
        store,
        cluster,
        heartbeat,
        settings,
        ping=ping,
        clock=clock,
        wall_us=wall_us,
    )
    catalog = await core.catalogs.refresh()
    await core.members.claim_name(catalog.members.get(core.name))
    async with asyncio.TaskGroup() as tasks:
        sleep = asyncio.sleep
        loops: list[tuple[str, Act, Act]] = [
            ("homes", core.homes.step, lambda: sleep(settings.catalog_interval)),
            ("retention", lambda: _retain(core), lambda: sleep(settings.retention_interval)),
            ("beat", core.presence.beat, lambda: sleep(settings.heartbeat)),
            ("look", core.presence.look, core.presence.rest),
            (
                "follow",
                lambda: _follow(core, tasks),
                lambda: core.watch.rest(calm=core.presence.is_calm),
            ),
            ("master", core.master.run, core.watch.rest),
        ]
        if settings.compaction:
            pause = settings.compaction_interval
            loops.append(("compaction", lambda: _compact(core), lambda: sleep(pause)))
        running = [tasks.create_task(_every(*x, core.failing)) for x in loops]
        try:
            yield core
        finally:
            for task in [*running, *core.writer.tasks]:
                task.cancel()


async def leave(core: BrokerCore) -> None:
    """Hand over in order: take records until the next era has begun without us, then go.

    The last broker of a cluster ends its row and goes; the next to come goes on from there.
    """
    await core.presence.beat(leaving=True)
    await core.presence.look()
    while True:
        era, others = core.catalog.era, core.master.membership().living.values()
        ours = era is not None and era.row(core.name)
        if not ours or ours.incarnation != core.incarnation:
            break
        if all(x.leaving for x in others):
            await core.writer.seal()
            break
        await core.writer.changed.wait(
            asyncio.get_running_loop().time() + core.settings.catalog_interval
        )
    await core.catalogs.change(lambda x: without_members(x, {core.name}))
    await core.members.leave()


async def _follow(core: BrokerCore, tasks: asyncio.TaskGroup) -> None:
    """Follow the catalogs that others found, then look for the next until there is none."""
    hints = -1
    while core.writer.followed is not core.catalog or hints != core.watch.hints:
        core.writer.follow(core.catalog, tasks)
        hints = core.watch.hints
        await core.catalogs.refresh()


async def _retain(core: BrokerCore) -> None:
    """Cut and delete. How old objects are is measured from a heartbeat in the store."""
    if core.master.acting:
        if any(x.retain_seconds is not None for x in core.catalog.collections):
            await core.members.write()
        await core.retention.step()


async def _compact(core: BrokerCore) -> None:
    await core.compactor.step()


async def _every(what: str, act: Act, rest: Act, failing: dict[str, str]) -> None:
    """Do something again and again, whatever becomes of it. ``NameTaken`` alone ends it.

    What the store cannot do now, or what is damaged, is tried after the usual rest, all else
    ever more rarely. ``failing`` has what was said, until it succeeds.
    """
    pause = 0.0
    while True:
        failed: Exception | None = None
        try:
            await act()
        except NameTaken:
            raise
        except StoreError as error:  # it refuses in passing, too: a start alone ends by that
            _log.warning("broker.failed", operation=what, error=str(error))
        except Exception as error:  # noqa: BLE001 - the border of a loop, not of the broker
            failed = error
            _log.exception("broker.failed", operation=what, error=str(error))
            if not isinstance(error, (Damaged, RangeDamaged)):
                pause = min(2 * pause + _FIRST_PAUSE, _MAX_PAUSE)
                await asyncio.sleep(pause)
        if failed is None:
            failing.pop(what, None)
            pause = 0.0
        else:
            failing[what] = str(failed) or type(failed).__name__
        await rest()

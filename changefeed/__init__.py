"""A change feed processor: hosts share the ranges of a feed through leases.

Write an observer, and run hosts over a feed; each range is read by one host at a time, in
order, and goes on from its last checkpoint on any host::

    from collections.abc import Sequence
    from changefeed import Change, Context, Settings, open_host

    class Greeter:
        async def process(self, context: Context, changes: Sequence[Change]) -> None:
            for change in changes:
                print(change.key, change.value())

    async with open_host(Settings(), Greeter) as host:
        await host.run()

The command ``changefeed run --observer=module:Greeter`` is the same as a process of its own.
What can be imported from here is the library that you may rely on; tests find more in
``changefeed.testing``. What is under other names may change with any version. Modules load
when a name of theirs is first used.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_TREE = Path(__file__).parent.parent
if (_TREE / "pyproject.toml").is_file():
    # A checkout: modules have the paths that git knows. The links are for static tools.
    __path__ = [str(_TREE), *__path__]

if TYPE_CHECKING:
    from changefeed.feeds.addresses import open_feed
    from changefeed.feeds.errors import (
        FeedError,
        FeedRefused,
        FeedUnavailable,
        RangeUnknown,
    )
    from changefeed.feeds.feed import (
        Change,
        Child,
        Feed,
        FeedRange,
        Operation,
        Page,
        Position,
        RangeEnded,
        RangeId,
        StartAt,
    )
    from changefeed.feeds.memory import MemoryFeed
    from changefeed.host.endpoints import AsgiApp, asgi_endpoints, endpoints
    from changefeed.host.health import Health
    from changefeed.host.host import Host
    from changefeed.host.settings import (
        CosmosSettings,
        FeedSettings,
        HostSettings,
        LeaseSettings,
        ObserverSettings,
        Settings,
        WebSettings,
        load_settings,
    )
    from changefeed.host.wiring import open_host
    from changefeed.leases.addresses import open_container
    from changefeed.leases.container import LeaseContainer
    from changefeed.leases.lease import HostName, Lease, Member
    from changefeed.leases.memory import MemoryLeases
    from changefeed.log.client.sender import ProducerOptions
    from changefeed.log.producer import Producer
    from changefeed.log.producing import open_producer
    from changefeed.log.records import Record
    from changefeed.log.sync_producer import SyncProducer, open_sync_producer
    from changefeed.observers.errors import (
        ObserverFailed,
        ObserverStuck,
    )
    from changefeed.observers.observer import CloseReason, Context, Observer
    from changefeed.observers.registry import observer
    from changefeed.observers.settings import RetrySettings
    from changefeed.processor import ChangeFeedProcessor, ProcessorGroup
    from changefeed.runtime.errors import (
        Failure,
        NameTaken,
        StoreError,
        StoreRefused,
        StoreUnavailable,
        UserError,
    )
    from changefeed.runtime.settings import LogSettings

_GROUPS = {
    "What an observer sees": {
        "Change": "feeds.feed",
        "Operation": "feeds.feed",
        "Context": "observers.observer",
        "CloseReason": "observers.observer",
        "Observer": "observers.observer",
        "observer": "observers.registry",
    },
    "A host in a program": {
        "Host": "host.host",
        "Health": "host.health",
        "open_host": "host.wiring",
        "endpoints": "host.endpoints",
        "ChangeFeedProcessor": "processor",
        "ProcessorGroup": "processor",
        "asgi_endpoints": "host.endpoints",
        "AsgiApp": "host.endpoints",
    },
    "Settings": {
        "Settings": "host.settings",
        "load_settings": "host.settings",
        "HostSettings": "host.settings",
        "FeedSettings": "host.settings",
        "LeaseSettings": "host.settings",
        "ObserverSettings": "host.settings",
        "RetrySettings": "observers.settings",
        "CosmosSettings": "host.settings",
        "WebSettings": "host.settings",
        "LogSettings": "runtime.settings",
    },
    "Producing": {
        "open_producer": "log.producing",
        "Producer": "log.producer",
        "Record": "log.records",
        "ProducerOptions": "log.client.sender",
        "open_sync_producer": "log.sync_producer",
        "SyncProducer": "log.sync_producer",
    },
    "Feeds": {
        "Feed": "feeds.feed",
        "FeedRange": "feeds.feed",
        "RangeId": "feeds.feed",
        "Position": "feeds.feed",
        "Page": "feeds.feed",
        "StartAt": "feeds.feed",
        "Child": "feeds.feed",
        "RangeEnded": "feeds.feed",
        "MemoryFeed": "feeds.memory",
        "open_feed": "feeds.addresses",
    },
    "Leases": {
        "LeaseContainer": "leases.container",
        "Lease": "leases.lease",
        "Member": "leases.lease",
        "HostName": "leases.lease",
        "MemoryLeases": "leases.memory",
        "open_container": "leases.addresses",
    },
    "Errors": {
        "UserError": "runtime.errors",
        "Failure": "runtime.errors",
        "NameTaken": "runtime.errors",
        "FeedError": "feeds.errors",
        "FeedUnavailable": "feeds.errors",
        "FeedRefused": "feeds.errors",
        "RangeUnknown": "feeds.errors",
        "StoreError": "runtime.errors",
        "StoreUnavailable": "runtime.errors",
        "StoreRefused": "runtime.errors",
        "ObserverFailed": "observers.errors",
        "ObserverStuck": "observers.errors",
    },
}
"""What is promised, for what purpose, and in which module it is."""

_MODULES = {name: module for names in _GROUPS.values() for name, module in names.items()}

__all__ = [
    "AsgiApp",
    "Change",
    "ChangeFeedProcessor",
    "Child",
    "CloseReason",
    "Context",
    "CosmosSettings",
    "Failure",
    "Feed",
    "FeedError",
    "FeedRange",
    "FeedRefused",
    "FeedSettings",
    "FeedUnavailable",
    "Health",
    "Host",
    "HostName",
    "HostSettings",
    "Lease",
    "LeaseContainer",
    "LeaseSettings",
    "LogSettings",
    "Member",
    "MemoryFeed",
    "MemoryLeases",
    "NameTaken",
    "Observer",
    "ObserverFailed",
    "ObserverSettings",
    "ObserverStuck",
    "Operation",
    "Page",
    "Position",
    "ProcessorGroup",
    "Producer",
    "ProducerOptions",
    "RangeEnded",
    "RangeId",
    "RangeUnknown",
    "Record",
    "RetrySettings",
    "Settings",
    "StartAt",
    "StoreError",
    "StoreRefused",
    "StoreUnavailable",
    "SyncProducer",
    "UserError",
    "WebSettings",
    "asgi_endpoints",
    "endpoints",
    "load_settings",
    "observer",
    "open_container",
    "open_feed",
    "open_host",
    "open_producer",
    "open_sync_producer",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = found  # asked for once
    return found


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__name__", "__file__", "__path__"]

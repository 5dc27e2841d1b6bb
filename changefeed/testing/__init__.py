"""What the tests of a user's code need: observers called, fleets in virtual time, contracts.

``deliver`` calls an observer with changes and returns what it did with them. ``Fleet`` runs
real hosts in one process; pytest has it as the fixture ``changefeed_fleet``, which is there
where the package is installed. ``store_contract`` and ``feed_contract`` make a
test of all that a store or a feed of your own must keep to. See ``docs/testing.md``.

The contracts and the fixture need pytest; the rest does not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from changefeed.feeds.memory import MemoryFeed
    from changefeed.leases.memory import MemoryLeases
    from changefeed.testing.contracts import feed_contract, store_contract
    from changefeed.testing.feed_harness import FeedAbility, FeedHarness
    from changefeed.testing.fleet import Fleet, FleetLog
    from changefeed.testing.observers import (
        DeliveryResult,
        RecordingContext,
        deliver,
        make_changes,
    )
    from changefeed.testing.store_suite import ConnectStore
    from changefeed.testing.virtual_time import (
        Deadlock,
        VirtualTimeLoop,
        run_in_virtual_time,
    )

_GROUPS = {
    "An observer": {
        "deliver": "testing.observers",
        "DeliveryResult": "testing.observers",
        "make_changes": "testing.observers",
        "RecordingContext": "testing.observers",
    },
    "A fleet": {
        "Fleet": "testing.fleet",
        "FleetLog": "testing.fleet",
        "run_in_virtual_time": "testing.virtual_time",
        "VirtualTimeLoop": "testing.virtual_time",
        "Deadlock": "testing.virtual_time",
        "MemoryFeed": "feeds.memory",
        "MemoryLeases": "leases.memory",
    },
    "Feeds and stores of your own": {
        "store_contract": "testing.contracts",
        "ConnectStore": "testing.store_suite",
        "feed_contract": "testing.contracts",
        "FeedHarness": "testing.feed_harness",
        "FeedAbility": "testing.feed_harness",
    },
}
"""What is promised, for what purpose, and in which module it is."""

_MODULES = {name: module for names in _GROUPS.values() for name, module in names.items()}

__all__ = [
    "ConnectStore",
    "Deadlock",
    "DeliveryResult",
    "FeedAbility",
    "FeedHarness",
    "Fleet",
    "FleetLog",
    "MemoryFeed",
    "MemoryLeases",
    "RecordingContext",
    "VirtualTimeLoop",
    "deliver",
    "feed_contract",
    "make_changes",
    "run_in_virtual_time",
    "store_contract",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"changefeed.{module}"), name)
    globals()[name] = found  # asked for once
    return found


def __dir__() -> list[str]:
    return [*__all__, "__doc__", "__name__", "__file__", "__path__"]

"""What describes a kind of feed to those who open feeds by their address."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any

from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.cosmos.spending import Budgets
from changefeed.feeds.feed import Feed, Position
from changefeed.runtime.backends import Address, Backend, BackendT, BackendTable, own_settings
from changefeed.runtime.diagnostics import Diagnostic

_SECTIONS = "CHANGEFEED_BACKENDS__"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenOptions:
    """What opening a feed or a lease container may need beside the address.

    ``cosmos`` opens accounts of Cosmos DB. ``create`` allows to create a lease container
    that is not there, and ``must_exist`` forbids to make anything, also where that costs
    nothing. ``only_look`` says that nothing will be written: leases of processors that cannot
    be shared with may be shown. ``keeps_changes`` says that whole changes will be kept there:
    each write is on the disk when it returns, and a file that is made is for its user alone.
    ``backends`` are the settings of backends by
    their names, as the user wrote them; a backend finds its own, checked by its model, in
    ``settings``. ``budgets`` are what feeds that are opened with the same share.
    """

    only_look: bool = False
    must_exist: bool = False
    cosmos: CosmosAccess = field(default_factory=lambda: CosmosAccess.of(os.environ))
    create: bool = False
    keeps_changes: bool = False
    backends: Mapping[str, Mapping[str, Any]] = field(
        default_factory=lambda: backend_sections(os.environ)
    )
    settings: Any = None
    budgets: Budgets = field(default_factory=Budgets)


def backend_sections(environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return what the environment says to backends: ``CHANGEFEED_BACKENDS__NAME__KEY``."""
    sections: dict[str, dict[str, str]] = {}
    for variable, value in environ.items():
        name, _, key = variable.upper().removeprefix(_SECTIONS).lower().partition("__")
        if variable.upper().startswith(_SECTIONS) and key:
            sections.setdefault(name, {})[key] = value
    return sections


def prepared(
    table: BackendTable[BackendT], address: str, options: OpenOptions | None
) -> tuple[BackendT, Address, OpenOptions]:
    """Return what opens an address: its backend, its parts, and options with the settings of
    that backend. Without ``options``, they are taken from the environment.
    """
    backend, where = table.find(address)
    options = options or OpenOptions()
    assert options.settings is None, "settings are those of one backend: found here"
    return backend, where, replace(options, settings=own_settings(backend, options.backends))


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionTraits:
    """What reading in batches (on Spark) needs beyond the contract of feeds.

    ``order`` returns the sequence that no change before a position exceeds, ``position``
    the one behind a sequence; both raise ``FeedRefused``. Transactions lie ``step``
    sequences apart, or more. ``identity`` returns what offsets are to say of the feed: its
    identity, where positions do not say it. ``hash_of`` returns where a key of changes lies, as
    the bounds of ranges say it, or ``None`` where that is not known.

    Two are for feeds that start with a snapshot. ``snapshot_end`` returns where that ends which
    a position is in, if it is in one; ``beside`` returns a position as it is in the snapshot
    that another is in.
    """

    order: Callable[[Position], int]
    position: Callable[[int], Position]
    step: int = 1
    identity: Callable[[Feed], str] = lambda _: ""
    hash_of: Callable[[Feed, str], Awaitable[str | None]] | None = None
    snapshot_end: Callable[[Position], Position | None] = lambda _: None
    beside: Callable[[Position, Position], Position] = lambda at, _: at


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedBackend(Backend):
    """A kind of feed. See ``changefeed.runtime.backends`` for how it is found.

    ``open`` returns the feed, open as long as the block lasts, and raises ``FeedRefused``
    with advice, at once for an address that cannot be one, else on entering the block.
    ``check`` yields what ``changefeed doctor`` shows beside the feed's own answers, and
    raises what feeds raise. ``modes`` are those that ``?mode=`` chooses from, if it has
    any. ``positions`` make the feed one that Spark can read.
    """

    open: Callable[[Address, OpenOptions], AbstractAsyncContextManager[Feed]]
    check: Callable[[Address, OpenOptions], AsyncIterator[Diagnostic]] | None = None
    modes: tuple[str, ...] = ()
    positions: Callable[[], PositionTraits] | None = None

"""What describes a kind of store to those who open one by its address."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.backends import Address, Backend
from changefeed.runtime.diagnostics import Diagnostic
from changefeed.stores.store import Store

OpenStore: TypeAlias = Callable[[Address, OpenOptions], AbstractAsyncContextManager[Store]]


Check: TypeAlias = Callable[[Any], AsyncIterator[Diagnostic]]
"""Yields what ``changefeed doctor`` shows of an open store, beside whether records can be
written. What it raises becomes a diagnostic as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreBackend(Backend):
    """A kind of store. See ``changefeed.runtime.backends`` for how it is found.

    ``open_store`` opens a place for records, as long as the block lasts. It raises
    ``StoreRefused`` with advice, at once for an address that cannot be one, else on
    entering the block. A store that is not there is created where ``options.create`` says so,
    or where creating it costs nothing; but never where ``options.must_exist``: raise
    ``StoreMissing`` then. Where ``options.keeps_changes``, each write is on the disk when
    it returns. ``locating`` are the options of an address that say where its records are, and
    not how they are reached; by default all are. A store that is ``apart`` has the checkpoint
    of each range in a record of its own, beside that of its lease, because others read them so.
    """

    open_store: OpenStore
    check: Check | None = None
    locating: Collection[str] | None = None
    apart: bool = False

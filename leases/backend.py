"""What describes a kind of lease container to those who open one by its address."""

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar

from pydantic import BaseModel

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.container import LeaseContainer
from changefeed.leases.store import Store
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic

Opened = TypeVar("Opened")
Open: TypeAlias = Callable[[Address, OpenOptions], AbstractAsyncContextManager[Opened]]


class Check(Protocol):
    def __call__(
        self, address: Address, options: OpenOptions, /, *, feed: str
    ) -> AsyncIterator[Diagnostic]:
        """Yield what ``changefeed check`` shows; ``feed`` is the address of the feed.

        Nothing is created. What containers raise becomes a diagnostic as well.
        """
        ...


def _unchanged(place: str) -> str:
    return place


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseBackend:
    """A kind of lease container. See ``changefeed.runtime.backends`` for how it is found.

    ``open_store`` opens a place for records; leases, checkpoints and members are made of them
    (``changefeed.leases.stored``), and dead letters. Where leases and checkpoints have a form
    of their own when they are kept together, ``open_container`` opens that. Both return it open
    as long as the block lasts, and raise ``StoreRefused`` with advice, at once for an
    address that cannot be one, else on entering the block. A store that is not there is created
    where ``options.create`` says so, or where creating it costs nothing; but never where
    ``options.must_exist``: raise ``StoreMissing`` then. ``locating`` are the options of an
    address that say where its leases are, and not how they are reached; by default all are.
    ``absolute`` makes a place independent of the working directory.
    """

    name: str
    place: str
    open_store: Open[Store]
    open_container: Open[LeaseContainer] | None = None
    check: Check | None = None
    settings: type[BaseModel] | None = None
    locating: Collection[str] | None = None
    absolute: Callable[[str], str] = _unchanged

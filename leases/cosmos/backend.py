"""Cosmos DB among the lease containers: ``cosmos://HOST/DATABASE/CONTAINER?prefix=…``."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

from changefeed.feeds.backend import OpenOptions
from changefeed.leases.backend import LeaseBackend
from changefeed.leases.container import LeaseContainer
from changefeed.leases.cosmos import diagnostics, opening
from changefeed.leases.store import Store
from changefeed.runtime.backends import Address
from changefeed.runtime.diagnostics import Diagnostic, problem

_ALL_VERSIONS = "mode=all-versions"


def _container(
    at: Address, options: OpenOptions
) -> AbstractAsyncContextManager[LeaseContainer]:
    return opening.open_leases(
        at.scheme,
        at.place,
        options.cosmos,
        create=options.create,
        only_look=options.only_look,
    )


def _store(at: Address, options: OpenOptions) -> AbstractAsyncContextManager[Store]:
    return opening.open_store(at.scheme, at.place, options.cosmos, create=options.create)


async def _check(
    address: Address, options: OpenOptions, *, feed: str
) -> AsyncIterator[Diagnostic]:
    async for found in diagnostics.check(address.scheme, address.place, options.cosmos):
        yield found
    # Both addresses have a mode; where they differ, .NET would misread the leases.
    differ = (_ALL_VERSIONS in feed) != (_ALL_VERSIONS in address.place)
    if differ and feed.startswith("cosmos"):
        yield problem(
            "mode",
            "the feed is read in another mode than the leases say",
            "give both addresses the same mode=…",
        )


BACKEND = LeaseBackend(
    name="cosmos",
    place="//HOST/DATABASE/CONTAINER",
    open_store=_store,
    open_container=_container,
    check=_check,
    locating=("prefix", "processor", "feed"),
)

"""Asking the owner of a range to try the change that a key waits for now, or to put it aside.

The request stands in the lease, where the owner finds it with its next listing or renewal, and
writes the answer: only the owner knows which keys wait.
"""

import asyncio
from collections.abc import Mapping
from uuid import uuid4

from msgspec.structs import replace

from changefeed.cli.existing_leases import existing_leases
from changefeed.cli.io.report import say
from changefeed.feeds.feed import RangeId
from changefeed.fleet.phrases import named_leases
from changefeed.host.settings import Settings
from changefeed.leases.container import LeaseContainer
from changefeed.leases.errors import LeaseConflict
from changefeed.leases.fleet import foreign_owners
from changefeed.leases.lease import KeyRequest, Lease
from changefeed.leases.updating import update_lease
from changefeed.runtime.errors import Failure, UserError

_LOOK = 0.25
_TAKEN: Mapping[bool, str] = {
    True: "tries the change that key {!r} waits for once more, and puts it aside if it fails",
    False: "tries the change that key {!r} waits for now",
}


async def ask(settings: Settings, name: str, key: str, *, aside: bool) -> None:
    """Ask, and print the answer."""
    async with existing_leases(settings) as container:
        patience = settings.leases.expiration
        say(await ask_owner(container, name, key, aside=aside, patience=patience))


async def ask_owner(
    container: LeaseContainer, name: str, key: str, *, aside: bool, patience: float
) -> str:
    """Ask the owner of a range, and return its answer in words.

    Raise ``UserError`` where nobody can answer, or a change cannot be put aside, ``Failure``
    where no answer came within so many seconds, and what containers raise.
    """
    (listed,) = named_leases(await container.list(), [name])
    _check_owner(listed)
    request = KeyRequest(id=uuid4().hex, key=key, aside=aside)
    try:
        await update_lease(
            container, listed.range_id, lambda lease: replace(lease, key_request=request)
        )
        async with asyncio.timeout(patience):
            lease = await _wait_for_answer(container, listed.range_id, request)
    except LeaseConflict as error:
        raise UserError(str(error)) from error
    except TimeoutError:
        raise Failure(
            f"range {name}: {listed.owner} has not answered for {patience:g} s: it is "
            f"stuck or dead (see changefeed status). Ask again when another owns the range"
        ) from None
    return _in_words(lease, request)


def _check_owner(lease: Lease) -> None:
    if lease.owner is None:
        why = f"is paused ({lease.paused})" if lease.paused else "has no owner"
        raise UserError(
            f"range {lease.range_id} {why}: only the host that reads a range can try a change "
            f"of it, or put it aside"
        )
    if foreign_owners([lease]):
        raise UserError(
            f"range {lease.range_id} is read by {lease.owner}, a processor of another kind: it "
            f"knows of no keys that wait"
        )


async def _wait_for_answer(
    container: LeaseContainer, range_id: RangeId, request: KeyRequest
) -> Lease:
    while True:
        lease = await container.read(range_id)
        found = None if lease is None else lease.key_request
        if lease is None or found is None or found.id != request.id:
            raise UserError(
                f"range {range_id} has ended, or another request came in between: ask again"
            )
        if found.answer:
            return lease
        await asyncio.sleep(_LOOK)


def _in_words(lease: Lease, request: KeyRequest) -> str:
    found, name = lease.key_request, lease.range_id
    assert found is not None, f"{name} was asked for {request}"
    if found.answer == "no dead letters":
        raise UserError(
            f"range {name}: {lease.owner} puts nothing aside. Set observer.on_failure to "
            f"'dead-letter' for its hosts, and start them again"
        )
    if found.answer == "not waiting":
        return (
            f"{name}: key {request.key!r} does not wait at {lease.owner}: nothing is to be "
            f"done. changefeed status names the key that waits the longest"
        )
    return f"{name}: {lease.owner} " + _TAKEN[request.aside].format(request.key)

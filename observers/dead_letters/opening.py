"""Dead letters by address, as settings and command lines name them.

``jsonl:PATH`` is a file of lines. Every other address is one that leases may have: ``sqlite:``,
``postgresql:``, ``redis:``, ``blob:``, ``cosmos:``, or one of another package.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

from changefeed.feeds.backend import OpenOptions
from changefeed.observers.dead_letters.jsonl import open_jsonl
from changefeed.observers.dead_letters.letter import DeadLetters, no_letters
from changefeed.observers.dead_letters.stored import StoredDeadLetters
from changefeed.runtime.backends import why_unreadable
from changefeed.runtime.errors import StoreMissing, StoreRefused, StoreUnavailable, answered
from changefeed.runtime.named_file import is_there
from changefeed.stores.addresses import open_store, without_secrets
from changefeed.stores.store import Store

Opened = AbstractAsyncContextManager[DeadLetters]


def open_dead_letters(address: str, options: OpenOptions | None = None) -> Opened:
    """Open a place for dead letters, making it if it is not there, unless it
    ``options.must_exist``.

    Secrets come from ``options``, or from the environment. Raise ``StoreRefused`` for
    an address that cannot be one, here or when entered, and ``StoreUnavailable`` when
    entered, if the place does not answer.
    """
    unreadable = why_unreadable(address)
    if unreadable is not None:
        raise StoreRefused(f"the address of dead letters cannot be read: {unreadable}")
    options = options or OpenOptions()
    scheme, _, place = address.partition(":")
    if scheme == "jsonl":
        return _open_lines(place, must_exist=options.must_exist)
    wanted = replace(options, create=not options.must_exist, keeps_changes=True)
    try:
        opening = open_store(address, wanted)
    except StoreRefused as error:
        raise StoreRefused(
            f"dead letters are kept in jsonl:PATH, or where leases can be: {error}"
        ) from error
    return _stored(opening, without_secrets(address))


def _open_lines(place: str, *, must_exist: bool) -> Opened:
    if not place:
        raise StoreRefused("'jsonl:' does not say where: jsonl:PATH")
    try:
        there = is_there(Path(place))
    except OSError as error:  # a path that no file can have
        raise StoreRefused(f"{place}: {error.strerror}") from error
    if there and not Path(place).is_file():
        raise StoreRefused(f"{place} is not a file: give the dead letters one of their own")
    if must_exist and not there:
        raise no_letters(f"jsonl:{place}")
    return open_jsonl(place)


@asynccontextmanager
async def _stored(
    opening: AbstractAsyncContextManager[Store], where: str
) -> AsyncIterator[DeadLetters]:
    async with AsyncExitStack() as stack:
        try:
            store = await stack.enter_async_context(opening)
        except StoreMissing as error:
            raise no_letters(where) from error
        except StoreUnavailable as error:
            raise StoreUnavailable(f"dead letters: {error}") from error
        except StoreRefused as error:
            refused = StoreRefused(f"dead letters cannot be kept there: {error}")
            raise (answered(refused) if error.may_pass else refused) from error
        yield StoredDeadLetters(store, where=where)

"""The items of one container: conditional reads and writes, and what went wrong with them.

The client sends a write again when its answer was lost, whatever its options say, so a
conflict may be the echo of one's own success. Who writes must therefore be able to
recognise his own write: ``None`` says only that something is there, or that nothing is.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from copy import copy
from typing import Any, TypeAlias, TypeVar

import msgspec
from azure.core import MatchConditions
from azure.core.pipeline import PipelineRequest
from azure.cosmos.exceptions import CosmosHttpResponseError

from changefeed.feeds.cosmos.answers import Answer
from changefeed.feeds.cosmos.client import Container, forget_deleted
from changefeed.feeds.cosmos.repeating import (
    ANSWER,
    CONDITION,
    RepeatedRequests,
    SignedRequest,
)
from changefeed.runtime.errors import StoreRefused
from changefeed.stores.cosmos.errors import OF_STORES
from changefeed.stores.kinds import LEASES
from changefeed.stores.store import CallLimits

Document: TypeAlias = dict[str, Any]
Operations: TypeAlias = Sequence[Mapping[str, Any]]
T = TypeVar("T")

_AS_MUCH_AS_FITS = -1
"""A page is as large as the service lets it be: 4 MB, which is a listing of most fleets."""

_MAX_ETAG = 256
_MADE = (200, 204)
_KEYS = ("/id", "/partitionKey")
_SESSION = "x-ms-session-token"
_MAX_OPERATIONS = 10  # the service refuses more in one partial update


class Items:
    """See the module. ``partitioned_by_id``: the partition key is ``/id``; else it is
    ``/partitionKey``, which repeats the id in what is written here. Other processors may have
    given their leases keys of their own: those are kept, and learned from what is read. A
    container with another partition key is refused when this is made.

    A write that names an etag is refused where the item has another one, or is not there:
    then it returns ``None``. Every call may raise ``StoreUnavailable`` and ``StoreRefused``.
    """

    def __init__(self, container: Container) -> None:
        self._proxy = container.proxy
        self._where = container.where
        self._failover = container.failover
        self.partitioned_by_id = _is_partitioned_by_id(container)
        self._keys: dict[str, str] = {}  # of items whose key is not their id
        self._bounds: CallLimits | None = None
        self._repeated = RepeatedRequests[str](container.failover)

    def bounded(self, bounds: CallLimits) -> "Items":
        """Return the same, asked within bounds."""
        bound = copy(self)
        bound._bounds = bounds  # noqa: SLF001 - a copy of ours
        return bound

    def keyed(self, document: Document) -> Document:
        """Return the document with its partition key in it."""
        if self.partitioned_by_id:
            return document
        return {**document, "partitionKey": self._key(document["id"])}

    async def read(self, name: str) -> Document | None:
        found = await self._asked(
            "read", lambda: self._proxy.read_item(name, self._key(name)), refused=_NOT_THERE
        )
        return await self._sought(name) if found is None else dict(found)

    async def create(self, document: Document) -> Document | None:
        """Return the item; ``None`` if one is there: the echo of a success looks the same."""
        if await self._sought(document["id"]) is not None:
            return None
        made = await self._asked(
            "create", lambda: self._proxy.create_item(document), refused=_IS_THERE
        )
        return None if made is None else dict(made)

    async def replace(self, document: Document, etag: str) -> str | None:
        """Write the whole item if its etag is unchanged. Return the new etag."""
        answer = await self._written(
            "replace",
            etag,
            lambda condition: self._proxy.replace_item(
                document["id"], document, **condition, no_response=True
            ),
        )
        return None if answer is None else _etag_in(answer)

    async def patch(self, name: str, operations: Operations, etag: str) -> str | None:
        """Change parts of an item if its etag is unchanged. Return the new etag."""
        answer = await self._patched(name, operations, etag, whole=False)
        return None if answer is None else str(answer["_etag"])

    async def patch_whole(
        self, name: str, operations: Operations, etag: str
    ) -> Document | None:
        """Change parts of an item if its etag is unchanged. Return all of it."""
        return await self._patched(name, operations, etag, whole=True)

    async def delete(self, name: str, etag: str) -> bool:
        """Delete an item if its etag is unchanged, and say whether that is so."""

        async def deleted(condition: Mapping[str, Any]) -> bool:
            await self._proxy.delete_item(name, self._key(name), **condition)
            return True

        return await self._written("delete", etag, deleted) is not None

    async def query(self, text: str, **parameters: str) -> list[Document]:
        """Return what a query over the whole container finds."""
        given: list[dict[str, object]] = [
            {"name": f"@{name}", "value": value} for name, value in parameters.items()
        ]

        async def found() -> list[Document]:
            pages = self._proxy.query_items(
                text, parameters=given, max_item_count=_AS_MUCH_AS_FITS
            )
            return [dict(x) async for x in pages]

        documents = await self._asked("query", found) or []
        if not self.partitioned_by_id:
            for x in documents:
                key, name = x.get("partitionKey"), x.get("id")
                if isinstance(key, str) and isinstance(name, str) and key != name:
                    self._keys[name] = key
        return documents

    def has_key_of_its_own(self, name: str) -> bool:
        """Whether the partition key of an item that was read is not its id."""
        return self._key(name) != name

    def _key(self, name: str) -> str:
        return self._keys.get(name, name)

    async def _sought(self, name: str) -> Document | None:
        """Look for an item under any partition key, where another may have chosen it."""
        if self.partitioned_by_id:
            return None
        found = await self.query("SELECT * FROM c WHERE c.id = @id", id=name)
        return found[0] if found else None

    async def _patched(
        self, name: str, operations: Operations, etag: str, *, whole: bool
    ) -> Document | None:
        """Return the whole item, or what has its new etag."""
        assert 0 < len(operations) <= _MAX_OPERATIONS, f"{len(operations)} changes to {name!r}"

        async def patched(condition: Mapping[str, Any]) -> Document:
            made = await self._patched_again(name, operations, etag, whole=whole)
            if made is not None:
                return made
            answer = await self._proxy.patch_item(
                name,
                self._key(name),
                [dict(x) for x in operations],
                **condition,
                no_response=not whole,
                raw_request_hook=keep,
            )
            return dict(answer) if whole else {"_etag": _etag_in(answer)}

        def keep(request: PipelineRequest[Any]) -> None:
            # Where an account takes writes in several regions, the client says with each what
            # it has seen: it goes on to.
            if _SESSION not in request.http_request.headers:
                self._repeated.keep(name, SignedRequest.by_client(request))

        return await self._written("patch", etag, patched)

    async def _patched_again(
        self, name: str, operations: Operations, etag: str, *, whole: bool
    ) -> Document | None:
        """Change an item by the request that the client has made for the change before.

        Return ``None`` unless the answer says that the change was made. The client then writes
        under the same etag, and may find it made, as where it repeats a write by itself.
        """
        own = {CONDITION: etag} | ({} if whole else {ANSWER: "return=minimal"})
        try:
            body = msgspec.json.encode({"operations": operations})
            answer = await self._repeated.ask(name, own, body, goes_on=_is_made)
            if answer is None or not _is_made(answer):
                return None
            made = msgspec.json.decode(answer.body, type=Document) if whole else {}
        except (msgspec.MsgspecError, ValueError):
            return None
        made = made or {"_etag": answer.etag}
        connection = self._proxy.client_connection
        session: Any = connection.session  # it has no types
        if session is not None:  # reads that follow have the change in their session
            session.update_session(connection, made, answer.headers)
        return made

    async def _written(
        self, kind: str, etag: str, write: Callable[[Mapping[str, Any]], Awaitable[T]]
    ) -> T | None:
        """Write under an etag. What cannot be one is refused here: the client would leave out
        an empty one, and overwrite whatever is there, and it cannot send every text.
        """
        if not (etag.isascii() and etag.isprintable() and 0 < len(etag) <= _MAX_ETAG):
            return None
        condition = {"etag": etag, "match_condition": MatchConditions.IfNotModified}
        return await self._asked(kind, lambda: write(condition), refused=_MOVED)

    async def _asked(
        self, name: str, call: Callable[[], Awaitable[T]], *, refused: Collection[int] = ()
    ) -> T | None:
        """Return ``None`` where the answer has one of the ``refused`` statuses and is about the
        item; any other error is the container's, and raised.
        """

        async def answered() -> T | None:
            with OF_STORES.errors(self._where):
                try:
                    return await self._following(call)
                except CosmosHttpResponseError as error:
                    of_item = error.sub_status not in _NOT_ABOUT_THE_ITEM
                    if of_item and error.status_code in refused:
                        return None
                    raise

        if self._bounds is None:
            return await answered()
        writes = name == "patch"  # documents of leases are written so, and nothing else
        kind = LEASES if writes or name == "read" else ""
        return await self._bounds.ask(name, answered(), kind=kind, writes=writes)

    async def _following(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call; where that fails as it does in a container that was deleted and made again, let
        the client know the new one from the next call on.
        """
        try:
            return await self._failover.ask(call())
        except CosmosHttpResponseError as error:
            if (error.status_code, error.sub_status) in _ANOTHER_CONTAINER:
                with suppress(CosmosHttpResponseError):  # it is not made again yet
                    await forget_deleted(self._proxy)
            raise


_NOT_THERE, _IS_THERE, _MOVED = (404,), (409,), (404, 412)
_ANOTHER_CONTAINER = ((404, 1002), (404, 1003), (400, 1024))
_NOT_ABOUT_THE_ITEM = (1002, 1003)  # no session to read in; no such container


def _is_partitioned_by_id(container: Container) -> bool:
    paths = container.properties["partitionKey"].get("paths") or ["none"]
    if len(paths) != 1 or paths[0] not in _KEYS:
        raise StoreRefused(
            f"{container.where} has the partition key {', '.join(paths)}, and leases need /id "
            "(or /partitionKey): make another container for them, e.g. by naming a new one "
            "with --set=leases.create=true"
        )
    return bool(paths[0] == "/id")


def _is_made(answer: Answer) -> bool:
    return answer.status in _MADE and bool(answer.etag)


def _etag_in(answer: Any) -> str:
    """Take the etag from the answer: endpoints that send the item put it there as well."""
    etag = str(answer.get("_etag") or answer.get_response_headers()["etag"])
    assert etag, "a write that was answered has an etag"
    return etag

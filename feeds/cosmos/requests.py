"""One question to the change feed is one request, whatever the client would make of it.

The vendor's client does more than is asked: it follows a split on its own, into several
ranges at once; it asks a hundred times where it is throttled, and a thousand where a
split takes its time; and it reads on in a container that was recreated. So each
answer that is about those things is taken from it as it comes in, by the hook that the
client offers for looking at raw answers, and what to do is decided here. The rest (regions
that are down, servers that are busy, connections that break) stays with the client,
which knows the account's regions.

A page is taken the same way, as bytes: the client would parse it into dictionaries
that nothing here needs.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from azure.cosmos.partition_key import NonePartitionKeyValue, NullPartitionKeyValue

from changefeed.feeds.cosmos.answers import CONTINUATION, RECREATED, REPEATED, Answer
from changefeed.feeds.cosmos.client import Container
from changefeed.feeds.cosmos.errors import (
    BAD_REQUEST,
    GONE,
    ErrorAnswer,
    Translator,
    problem_of,
)
from changefeed.feeds.cosmos.positions import client_range
from changefeed.feeds.cosmos.repeating import LIMIT, RepeatedRequests, SignedRequest
from changefeed.feeds.cosmos.spending import Budget
from changefeed.feeds.cosmos.topology import Place, Topology
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.feed import FeedRange, RangeId
from changefeed.runtime.errors import answered

T = TypeVar("T")
_RANGE_HEADER: Final = "x-ms-documentdb-partitionkeyrangeid"
_SPLITTING: Final = 1007
_TRIES: Final = 3
_IS_PAGE: Final = attrgetter("is_page")
_OF_A_QUERY: Final = ("x-ms-documentdb-isquery", "x-ms-documentdb-query-enablecrosspartition")
_OF_A_PLAN: Final = {
    "Content-Type": "application/json",
    "x-ms-cosmos-is-query-plan-request": "True",
    "x-ms-cosmos-query-version": "1.0",
    "x-ms-cosmos-supported-query-features": "Aggregate,Distinct,GroupBy,MultipleAggregates,"
    "MultipleOrderBy,OffsetAndLimit,OrderBy,Top",
}
"""No signature is over these. What needs another feature, an account refuses by its name."""

Key: TypeAlias = Sequence[Any]
"""A whole partition key, level by level: ``{}`` where an item has none."""


class _Taken(Exception):
    """Stops the client from within its hooks: with an answer, or because a place has moved."""

    def __init__(self, answer: Answer | None) -> None:
        super().__init__()
        self.answer = answer


class Requests:
    """Asks one container. Every request ends within ``TIMEOUT``; pages are paid of a
    ``budget``, and wait for their turn. ``request_units`` is what they have cost so far.

    ``topology`` is as it was when somebody last looked. An answer is ``None`` where the
    physical range that was asked is gone: look at the ranges again. Raises ``FeedUnavailable``
    and ``FeedRefused``.
    """

    def __init__(self, container: Container, budget: Budget | None = None) -> None:
        properties, failover = container.properties, container.failover
        self.rid: str = properties["_rid"]
        self.key_paths: Sequence[str] = properties["partitionKey"]["paths"]
        self.hash_version: int = properties["partitionKey"].get("version", 1)
        self.topology = Topology(physical=())
        self.request_units = 0.0
        self._budget = budget or Budget()
        self._container = failover.container
        self._failover = failover
        self._repeated = RepeatedRequests[tuple[Place, str]](failover)
        self._where = container.where
        self._listing = asyncio.Lock()

    async def changes(
        self,
        place: Place,
        after: Mapping[str, str] | None,
        limit: int,
        query: Callable[[], Mapping[str, Any]],
        mode: str,
        *,
        refused: Callable[[str], FeedRefused],
    ) -> Answer | None:
        """Ask for one page: 200 with changes, or 304. ``query`` says what goes to the client:
        the page that is behind ``after``, the header which names that, where one does.
        ``refused`` says that the server does not take what was asked: as a rule, the position.
        """
        what = place, mode
        translator = replace(OF_READERS, of_request=refused)
        reserved, answer = await self._budget.reserve(), None
        if after is not None:
            own = {**after, LIMIT: str(limit)}
            again = self._repeated.ask(what, own, goes_on=_IS_PAGE)
            answer = await self._ask(again, translator)
        if answer is None or not answer.is_ours:
            signed: list[SignedRequest] = []
            asked = self._by_client(place, query(), limit, signed)
            if (answer := await self._ask(asked, translator)) is None:
                return None
            if after is not None and answer.is_page:
                self._repeated.keep(what, signed[0])
        answer = self._paid(answer, reserved, translator)
        if answer is not None and not answer.etag:
            raise FeedUnavailable(f"{self._where} answered without saying where it stands")
        return answer

    async def found(
        self, at: Place | Key, after: str, *, limit: int, **query: Any
    ) -> Answer | None:
        """Ask for one page of what a query finds at a place, or under a partition key.

        ``after`` is the continuation of the page before; ``query`` goes to the client. It
        would begin again, without a word, where it finds that a place has moved meanwhile.
        """

        def check(request: Any) -> None:
            sent = request.http_request.headers
            where = (sent.get(_RANGE_HEADER), sent.get(CONTINUATION) or "")
            if isinstance(at, Place) and where != (at.physical, after):
                raise _Taken(None)

        if isinstance(at, Place):
            query["feed_range"] = client_range(at.low, at.high)
        else:
            query["partition_key"] = _for_client(at)
        reserved = await self._budget.reserve()
        request = self._queried(after, **query, max_item_count=limit, raw_request_hook=check)
        if (answer := await self._ask(request, _OF_QUERIES)) is None:
            return None
        return self._paid(answer, reserved)

    async def plan(self, query: str) -> Answer:
        """Ask how a query is to be put to several ranges: a query to all, made into that."""
        request = self._queried(query=query, raw_request_hook=_ask_for_plan)
        answer = await self._ask(request, _OF_QUERIES)
        if answer is None or (answer := self._checked(answer)) is None:
            raise FeedUnavailable(f"{self._where} is being split or merged")
        return answer

    async def hash_of(self, key: Key) -> str:
        """Return the hash of a partition key, as the bounds of ranges have it."""
        # Of whole numbers the client takes 32 bits in version 1.
        exact = [float(x) if type(x) is int else x for x in key]
        request = self._container.feed_range_from_partition_key(_for_client(exact))
        found = await self._ask(request)
        return str(found["Range"]["min"])

    async def _by_client(
        self, place: Place, query: Mapping[str, Any], limit: int, signed: list[SignedRequest]
    ) -> Answer | None:
        def check(request: Any) -> None:
            if request.http_request.headers.get(_RANGE_HEADER) != place.physical:
                raise _Taken(None)
            signed[:] = [SignedRequest.by_client(request)]

        pages = self._container.query_items_change_feed(
            **query, max_item_count=limit, raw_request_hook=check, raw_response_hook=_take
        ).by_page()
        try:
            return await self._taken(pages)
        except ValueError as error:
            # what the client says before it asks: the token is of another container
            raise FeedRefused(is_recreated(self._where)) from error

    async def _queried(self, after: str = "", **query: Any) -> Answer | None:
        pages = self._container.query_items(**query, raw_response_hook=_take)
        return await self._taken(pages.by_page(after or None))

    async def _taken(self, pages: AsyncIterator[Any]) -> Answer | None:
        try:
            await anext(pages, None)
        except _Taken as taken:
            return taken.answer
        raise FeedUnavailable(f"{self._where} gave no answer to read")

    async def look(self) -> None:
        """List the physical ranges, and let the client know them too.

        The client keeps one list for the whole process and gives away neither ids nor
        ancestors; but it shows the raw answers from which it makes the list.
        """
        self.topology = await self._ask(self._listed())

    async def _listed(self) -> Topology:
        async with self._listing:
            for _ in range(_TRIES):
                bodies: list[bytes] = []

                def keep(response: Any, bodies: list[bytes] = bodies) -> None:
                    answer = Answer.of(response.http_response)
                    if answer.status in REPEATED:
                        raise _Taken(answer)
                    if answer.body and answer.status < BAD_REQUEST:
                        bodies.append(answer.body)

                try:
                    async for _ in self._container.read_feed_ranges(
                        force_refresh=True, raw_response_hook=keep
                    ):
                        pass
                except _Taken as taken:
                    raise _error_in(self._where, taken.answer, OF_READERS) from None
                if bodies:  # else another task was quicker, and the client sent no request
                    return self._complete(bodies)
        raise FeedUnavailable(f"the ranges of {self._where} could not be listed just now")

    def _complete(self, bodies: Sequence[bytes]) -> Topology:
        ranges, rid = _ranges_in(bodies)
        self.check_same_container(rid)
        topology = Topology.of(ranges)
        if not topology.complete:
            raise FeedUnavailable(
                f"the list of ranges of {self._where} has gaps: a split is going on; ask again"
            )
        return topology

    def _ask(self, request: Awaitable[T], translator: Translator | None = None) -> Awaitable[T]:
        return (translator or OF_READERS).asked(self._where, self._failover.ask(request))

    def _paid(
        self, answer: Answer, reserved: float, translator: Translator | None = None
    ) -> Answer | None:
        """Pay for an answer, and return it as ``_checked``."""
        units = answer.request_units
        self.request_units += units
        self._budget.charged(units, reserved)
        return self._checked(answer, translator)

    def _checked(self, answer: Answer, translator: Translator | None = None) -> Answer | None:
        """Return an answer, unless its range has moved. Raise what it refuses."""
        if answer.status == GONE and answer.substatus != _SPLITTING:
            return None
        if answer.status >= BAD_REQUEST:
            raise _error_in(self._where, answer, translator or OF_READERS)
        return answer

    def check_same_container(self, rid: str) -> None:
        """Refuse an answer of another container than was opened."""
        if rid and rid != self.rid:
            raise FeedRefused(is_recreated(self._where))


_ADVICE: Final[Mapping[int, str]] = {
    401: "check the key, and the clock of this machine",
    403: "check the key, the rights of the identity, and the firewall of the account",
    404: "it is not there: check database and container in the address of the feed, or create "
    "the container",
}


@dataclass(frozen=True, kw_only=True)
class _OfReaders(Translator):
    """Says as well, by ``of_request``, what concerns the position that was asked for."""

    of_request: Callable[[str], FeedRefused] = FeedRefused

    def error(self, where: str, problem: ErrorAnswer) -> Exception:
        if (problem.status, problem.substatus) == (BAD_REQUEST, RECREATED):
            return FeedRefused(is_recreated(where))
        if problem.may_pass or problem.status in _ADVICE:
            return super().error(where, problem)
        text = (
            f"{where} refused to be read ({problem.code}) {problem.message}: if the position "
            f"is older than the container keeps its changes, reset the lease of this range"
        )
        return answered(self.of_request(text))


class _OfQueries(_OfReaders):
    """Refuses a query that the service rejects (400): it would reject it again."""

    def error(self, where: str, problem: ErrorAnswer) -> Exception:
        if problem.status != BAD_REQUEST or problem.substatus == RECREATED:
            return super().error(where, problem)
        return FeedRefused(f"{where} does not take the query: {problem.message}")


OF_READERS: Final = _OfReaders(unavailable=FeedUnavailable, refused=FeedRefused, advice=_ADVICE)
_OF_QUERIES: Final = _OfQueries(
    unavailable=FeedUnavailable, refused=FeedRefused, advice=_ADVICE
)


def is_recreated(where: str) -> str:
    return (
        f"{where} was deleted and recreated: positions in the old one mean nothing in the new "
        f"one. Reset the leases of this feed to start it again, or begin the query again"
    )


def _for_client(key: Key) -> Any:
    """Return a key as the client takes it, which alone takes null for none."""
    if len(key) > 1:
        return [*key]
    (value,) = key
    if value is None:
        return NullPartitionKeyValue
    return NonePartitionKeyValue if value == {} else value


def _ask_for_plan(request: Any) -> None:
    """Ask for the plan of a query in the place of its results."""
    for name in _OF_A_QUERY:
        request.http_request.headers.pop(name, None)
    request.http_request.headers.update(_OF_A_PLAN)


def _take(response: Any) -> None:
    """Take an answer from the client, unless the client knows better what to do with it."""
    answer = Answer.of(response.http_response)
    if answer.is_ours:
        raise _Taken(answer)


def _error_in(where: str, answer: Answer | None, translator: Translator) -> Exception:
    assert answer is not None, f"{where} was asked for no place that could move"
    try:
        message = str(msgspec.json.decode(answer.body)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        message = ""
    return translator.error(where, problem_of(answer.status, answer.headers, message))


class _Range(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    min_inclusive: str
    max_exclusive: str
    parents: list[str] | None = None


class _Ranges(msgspec.Struct, frozen=True):
    ranges: list[_Range] = msgspec.field(name="PartitionKeyRanges")
    container_rid: str = msgspec.field(name="_rid", default="")


def _ranges_in(bodies: Sequence[bytes]) -> tuple[Sequence[FeedRange], str]:
    """Read the pages of a list, and the container that it is of; what was replaced in the
    meantime is left out.
    """
    pages = [msgspec.json.decode(x, type=_Ranges) for x in bodies]
    found = {x.id: x for page in pages for x in page.ranges}
    gone = {name for x in found.values() for name in x.parents or ()}
    ranges = [
        FeedRange(
            id=RangeId(x.id),
            low=x.min_inclusive,
            high=x.max_exclusive,
            parents=tuple(RangeId(y) for y in x.parents or ()),
            generation=(len(x.parents or ()), 0),
        )
        for x in found.values()
        if x.id not in gone
    ]
    return ranges, pages[-1].container_rid

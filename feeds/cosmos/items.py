"""The items of a container by query: one question to one range is one page.

A range that splits or merges while it is read goes on in those that hold its keys now, from
the same continuation, as Azure's own clients go on: nothing is left out or read twice. What is
written meanwhile may be found or not: no query sees a container at one moment.

Each range answers by itself. So a query that orders, adds up, or takes the first few is
refused, unless it is about one partition key.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from changefeed.feeds.cosmos.answers import CONTINUATION, Answer
from changefeed.feeds.cosmos.documents import documents_of
from changefeed.feeds.cosmos.keys import steps_of
from changefeed.feeds.cosmos.requests import Key, Requests
from changefeed.feeds.cosmos.topology import Place
from changefeed.feeds.errors import FeedRefused, FeedUnavailable
from changefeed.feeds.feed import FeedRange

_MOVES: Final = 3  # how often in a row to follow a range that was moved meanwhile
_PAGE: Final = 10_000
"""Results that are asked for at once, of which an account gives what fits into 4 MB. For any
number (-1) the client would ask for none, and get a hundred."""
_OF_ALL_RANGES: Final = {
    "orderBy": "ORDER BY",
    "aggregates": "an aggregate",
    "groupByExpressions": "GROUP BY",
    "distinctType": "DISTINCT",
    "top": "TOP",
    "offset": "OFFSET",
    "limit": "LIMIT",
}
"""What one range cannot answer, by the names of a query plan."""


class _Plan(msgspec.Struct, frozen=True):
    """How an account wants several ranges to be asked."""

    info: dict[str, Any] = msgspec.field(name="queryInfo")


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """The text of a query, and the values of its parameters by their names."""

    text: str
    parameters: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPage:
    """Some results, each as its JSON, and how to go on: not at all, if ``after`` is empty."""

    results: Sequence[msgspec.Raw]
    after: str


class CosmosItems:
    """Made by ``opening``. ``paths`` lead to the partition key of an item, level by level, and
    ``identity`` is the resource id of the container.

    Raises ``FeedUnavailable`` and ``FeedRefused``.
    """

    def __init__(self, requests: Requests) -> None:
        self.identity = requests.rid
        self.paths = tuple(map(steps_of, requests.key_paths))
        self._requests = requests

    async def ranges(self) -> Sequence[FeedRange]:
        """List the ranges that there are now, by their bounds."""
        await self._requests.look()
        return self._requests.topology.physical

    async def holder(self, key: Key) -> FeedRange:
        """Return the range that has a partition key, of those that were listed last."""
        found = await self._requests.hash_of(key)
        return next(x for x in self._requests.topology.physical if x.low <= found < x.high)

    async def page(
        self, found: FeedRange, query: Query, after: str = ""
    ) -> ResultPage | Sequence[FeedRange]:
        """Return the next page of what a query finds in a range; or the ranges to read in its
        place, from the same ``after``.
        """
        for _ in range(_MOVES):
            if not self._requests.topology.physical:
                await self.ranges()
            place = self._requests.topology.find(found)
            if not isinstance(place, Place):
                return place
            answer = await self._found(place, query, after)
            if answer is not None:
                return self._page(answer)
            await self.ranges()
        raise FeedUnavailable(f"range {found.id!r} keeps moving; ask again")

    async def page_of_key(self, key: Key, query: Query, after: str = "") -> ResultPage:
        """Return the next page of what a query finds under a whole partition key."""
        answer = await self._found(key, query, after)
        if answer is None:
            raise FeedUnavailable("the range of the partition key has moved")
        return self._page(answer)

    async def check(self, query: str) -> None:
        """Raise ``FeedRefused`` for a query that one range cannot answer by itself."""
        answer = await self._requests.plan(query)
        with _read():
            info = msgspec.json.decode(answer.body, type=_Plan).info
        found = [y for x, y in _OF_ALL_RANGES.items() if info.get(x) not in (None, [], "None")]
        if found:
            raise FeedRefused(
                f"the query has {' and '.join(found)}, and each range would answer it by "
                f"itself: leave that to what reads the results, or ask about one partition key"
            )

    async def _found(self, at: Place | Key, query: Query, after: str) -> Answer | None:
        values = [{"name": x, "value": y} for x, y in query.parameters.items()]
        return await self._requests.found(
            at, after, limit=_PAGE, query=query.text, parameters=values
        )

    def _page(self, answer: Answer) -> ResultPage:
        with _read():
            body = documents_of(answer.body)
        self._requests.check_same_container(body.container_rid)
        return ResultPage(results=body.documents, after=answer.headers.get(CONTINUATION) or "")


@contextmanager
def _read() -> Iterator[None]:
    """Say what an answer means that is none of an account: it may pass."""
    try:
        yield
    except (msgspec.DecodeError, RecursionError) as error:
        raise FeedUnavailable(f"an answer to the query cannot be read: {error}") from error

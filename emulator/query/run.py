"""Runs a query over the items of a scope and hands the result out in pages.

A simple query is answered as it goes along: a page ends when it is full, and its token
says behind which item to go on. With ORDER BY, TOP, OFFSET or COUNT the whole scope is
read for every page, and the token says how many results were handed out.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from changefeed.emulator.errors import bad_request
from changefeed.emulator.hashing import HIGHEST, LOWEST
from changefeed.emulator.json_values import UNDEFINED, decoded_object
from changefeed.emulator.partition_keys import PartitionKey
from changefeed.emulator.query.evaluate import Evaluated, compiled
from changefeed.emulator.query.functions import sort_key
from changefeed.emulator.query.parser import parse, parse_condition
from changefeed.emulator.query.syntax import Call, Expression, Select
from changefeed.emulator.store import Row, Store

_LARGEST_PAGE: Final = 4 * 1024 * 1024
_LONGEST_NUMBER: Final = 18  # digits
_BY_HASH: Final = (
    "SELECT number, body FROM items WHERE container = ? AND number > ? AND epk >= ? "
    "AND epk < ? ORDER BY number"
)
_BY_KEY: Final = (
    "SELECT number, body FROM items INDEXED BY items_by_key "  # else all of the container
    "WHERE container = ? AND number > ? AND epk = ? AND pk = ? ORDER BY number"
)

Rows = Callable[[int], Iterable[Row]]
"""Gives (number, JSON text) of what is numbered above an argument, by number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which items a query is about: those of one key, or those with hashes in [low, high)."""

    container: int
    low: str = LOWEST
    high: str = HIGHEST
    key: PartitionKey | None = None

    def rows(self, store: Store, after: int) -> Iterator[Row]:
        """Return (number, body) of the items numbered above ``after``, by number."""
        if self.key is not None:
            values: tuple[Any, ...] = (self.container, after, self.key.epk, self.key.text)
            return store.rows(_BY_KEY, values)
        return store.rows(_BY_HASH, (self.container, after, self.low, self.high))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPage:
    """Results as JSON text, how many items were looked at, and how to go on, if at all."""

    results: list[bytes]
    looked_at: int
    continuation: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query with its parameters."""

    select: Select
    parameters: Mapping[str, Any]


def parsed(body: Mapping[str, Any]) -> Query:
    """Read the body of a query request: its text and its parameters."""
    text, given = body.get("query"), body.get("parameters") or []
    if not isinstance(text, str):
        raise bad_request('A query request has a body {"query": "SELECT …", "parameters": []}.')
    try:
        parameters = {x["name"]: x.get("value", UNDEFINED) for x in given}
    except (TypeError, KeyError, AttributeError) as error:
        raise bad_request(
            'The parameters of a query are [{"name": "@x", "value": 1}].'
        ) from error
    return Query(select=parse(text), parameters=parameters)


def fits(item: Mapping[str, Any], condition: str) -> bool:
    """Tell whether an item meets the condition of a patch, ``FROM c WHERE …``."""
    where = parse_condition(condition).where
    return where is None or compiled(where, {})(item) is True


def run(rows: Rows, query: Query, *, limit: int, continuation: str | None) -> ResultPage:
    if query.select.is_simple:
        return _streamed(rows, query, limit, _behind(continuation, "i"))
    return _collected(rows, query, limit, _behind(continuation, "n"))


def _behind(continuation: str | None, kind: str) -> int:
    if not continuation:  # clients send an empty one at the start
        return 0
    name, _, number = continuation.partition(":")
    if name != kind or not number.isdecimal() or len(number) > _LONGEST_NUMBER:
        raise bad_request(f"The continuation {continuation!r} does not belong to this query.")
    return int(number)


def _streamed(rows: Rows, query: Query, limit: int, after: int) -> ResultPage:
    keeps, shown = _where(query), _shown(query)
    results: list[bytes] = []
    size, looked_at, last = 0, 0, after
    for number, body in rows(after):
        if len(results) >= limit or size >= _LARGEST_PAGE:
            return ResultPage(results=results, looked_at=looked_at, continuation=f"i:{last}")
        looked_at, last = looked_at + 1, number
        if keeps is None and shown is None:
            results.append(body)
            size += len(body)
            continue
        item = decoded_object(body)
        if keeps is not None and keeps(item) is not True:
            continue
        value = None if shown is None else shown(item)
        if value is not UNDEFINED:
            results.append(body if shown is None else msgspec.json.encode(value))
            size += len(results[-1])
    return ResultPage(results=results, looked_at=looked_at, continuation=None)


def _collected(rows: Rows, query: Query, limit: int, done: int) -> ResultPage:
    select, keeps = query.select, _where(query)
    items = [decoded_object(body) for _, body in rows(0)]
    looked_at = len(items)
    if keeps is not None:
        items = [x for x in items if keeps(x) is True]
    if select.is_count:
        count = [msgspec.json.encode(_count(query, items))]
        return ResultPage(results=count, looked_at=looked_at, continuation=None)
    for order in reversed(select.order):
        key = compiled(order.expression, query.parameters)
        items.sort(key=lambda x, key=key: sort_key(key(x)), reverse=order.descending)  # type: ignore[misc]
    first = _whole_number(select.offset, query, "OFFSET")
    wanted = items[first:]
    if select.limit is not None:
        wanted = wanted[: _whole_number(select.limit, query, "LIMIT")]
    shown = _shown(query) or _itself
    values = [v for x in wanted if (v := shown(x)) is not UNDEFINED]
    page = values[done : done + limit]
    handed_out = done + len(page)
    return ResultPage(
        results=[msgspec.json.encode(x) for x in page],
        looked_at=looked_at,
        continuation=f"n:{handed_out}" if handed_out < len(values) else None,
    )


def _count(query: Query, items: list[dict[str, Any]]) -> Any:
    columns = query.select.columns
    call = columns[0].expression if columns else query.select.value
    assert isinstance(call, Call)
    if len(call.arguments) != 1:
        raise bad_request("COUNT takes one argument: COUNT(1), or COUNT(c.name).")
    counted = compiled(call.arguments[0], query.parameters)
    number = sum(1 for x in items if counted(x) is not UNDEFINED)
    return {columns[0].name: number} if columns else number


def _where(query: Query) -> Evaluated | None:
    where = query.select.where
    return None if where is None else compiled(where, query.parameters)


def _shown(query: Query) -> Evaluated | None:
    """Return what makes a result of an item; ``None`` where it is shown as it is."""
    select = query.select
    if select.is_whole:
        return None
    if select.value is not None:
        return compiled(select.value, query.parameters)
    columns = [(x.name, compiled(x.expression, query.parameters)) for x in select.columns]
    return lambda item: {k: v for k, x in columns if (v := x(item)) is not UNDEFINED}


def _itself(item: Any) -> Any:
    return item


def _whole_number(expression: Expression | None, query: Query, what: str) -> int:
    if expression is None:
        return 0
    value = compiled(expression, query.parameters)({})
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise bad_request(f"{what} (or TOP) must be a whole number, not {value!r}.")
    return value

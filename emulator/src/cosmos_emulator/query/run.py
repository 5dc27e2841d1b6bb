"""Runs a query over the items of a scope and hands the result out in pages.

A simple query is answered as it goes along: a page ends when it is full, and its token
says behind which item to go on. With JOIN, GROUP BY, DISTINCT, ORDER BY, TOP, OFFSET or an
aggregate the whole scope is read for every page, and the token says how many results were
handed out.
"""

import heapq
import itertools
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final

import msgspec

from cosmos_emulator.errors import bad_request
from cosmos_emulator.hashing import HIGHEST, LOWEST
from cosmos_emulator.json_values import UNDEFINED, decoded_object
from cosmos_emulator.partition_keys import PartitionKey
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.query.evaluate import GROUP, Compiler, Evaluated
from cosmos_emulator.query.evaluate import Row as Names
from cosmos_emulator.query.given import NO_POLICIES, ContainerPolicies, Given
from cosmos_emulator.query.parser import parse, parse_condition
from cosmos_emulator.query.ranking import (
    needs_statistics,
    ranked,
    score_texts,
    statistics_text,
    with_statistics,
)
from cosmos_emulator.query.syntax import ArrayOf, Column, Expression, Rank, Select
from cosmos_emulator.query.values import canonical, identity, is_number, sort_key
from cosmos_emulator.store import Row, Store

_LARGEST_PAGE: Final = 4 * 1024 * 1024
_MAX_RESULTS: Final = 2**31 - 1
_SECONDS_OF_CONDITION: Final = 0.2  # of a patch, which nothing runs beside
_MAX_RUN: Final = 10_000  # of a sort that other threads wait for
_MAX_NUMBER: Final = 18  # digits
_BY_HASH: Final = (
    "SELECT number, body FROM items WHERE container = ? AND number > ? AND epk >= ? "
    "AND epk < ? ORDER BY number LIMIT ?"
)
_BY_KEY: Final = (  # the index alone says which, else all of the container is read
    "SELECT number, body FROM items WHERE number IN (SELECT number FROM items INDEXED BY "
    "items_by_key WHERE container = ? AND number > ? AND epk = ? AND pk = ? ORDER BY number "
    "LIMIT ?) ORDER BY number"
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

    def rows(self, store: Store, after: int, most: int) -> list[Row]:
        """Return (number, body) of the items numbered above ``after``, by number."""
        if self.key is not None:
            values: tuple[Any, ...] = (self.container, after, self.key.epk, self.key.text)
            return list(store.rows(_BY_KEY, (*values, most)))
        values = (self.container, after, self.low, self.high, most)
        return list(store.rows(_BY_HASH, values))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultPage:
    """Results as JSON text, how many items were looked at, and how to go on, if at all."""

    results: list[bytes]
    looked_at: int
    continuation: str | None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """A query with its parameters, and its budget."""

    select: Select
    given: Given


def parsed(
    body: Mapping[str, Any],
    *,
    now: float,
    budget: Budget,
    policies: ContainerPolicies = NO_POLICIES,
) -> Query:
    """Read the body of a query request: its text and its parameters. ``now`` is the time
    of day.
    """
    text, listed = body.get("query"), body.get("parameters") or []
    if not isinstance(text, str):
        raise bad_request('A query request has a body {"query": "SELECT …", "parameters": []}.')
    try:
        parameters = {x["name"]: x.get("value", UNDEFINED) for x in listed}
    except (TypeError, KeyError, AttributeError) as error:
        raise bad_request(
            'The parameters of a query are [{"name": "@x", "value": 1}].'
        ) from error
    select = parse(text, budget)
    given = Given(parameters=parameters, now=now, budget=budget, policies=policies)
    return Query(select=select, given=given)


def fits(item: Mapping[str, Any], condition: str, *, now: float) -> bool:
    """Return whether an item meets the condition of a patch, ``FROM c WHERE …``."""
    budget = Budget(_SECONDS_OF_CONDITION)
    select = parse_condition(condition, budget)
    given = Given(parameters={}, now=now, budget=budget)
    return any(_kept(Compiler(given, _answer), select, [{select.item: item}]))


def whole_number(expression: Expression | None, query: Query, what: str) -> int:
    """Return what TOP, OFFSET or LIMIT says; zero if it is not there."""
    if expression is None:
        return 0
    value = Compiler(query.given, _answer).compiled(expression)({})
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or not 0 <= value <= _MAX_RESULTS:
        raise bad_request(
            f"{what} must be a whole number up to {_MAX_RESULTS}, not {str(value)[:40]!r}."
        )
    return int(value)


def weights_of(query: Query, rank: Rank) -> list[float]:
    """Return the weight of each component of ORDER BY RANK: 1, unless the query says them."""
    if rank.weights is None:
        return [1.0] * len(rank.components)
    value = Compiler(query.given, _answer).compiled(rank.weights)({})
    numbers = isinstance(value, list) and all(map(is_number, value))
    if not numbers or len(value) != len(rank.components):
        raise bad_request(
            f"RRF takes an array of {len(rank.components)} numbers, a weight for each of its "
            f"functions, not {str(value)[:40]}."
        )
    return [float(x) for x in value]


def run(rows: Rows, query: Query, *, limit: int | None, continuation: str | None) -> ResultPage:
    """Answer a page of so many results at most, or all on one page."""
    start = time.perf_counter()
    if query.select.is_streamed:
        page = _streamed(rows, query, limit, _behind(continuation, "i"))
    else:
        page = _collected(rows, query, limit, _behind(continuation, "n"))
    return replace(page, seconds=time.perf_counter() - start)


def _behind(continuation: str | None, kind: str) -> int:
    if not continuation:  # clients send an empty one at the start
        return 0
    name, _, number = continuation.partition(":")
    if name != kind or not number.isdecimal() or len(number) > _MAX_NUMBER:
        raise bad_request(f"The continuation {continuation!r} does not belong to this query.")
    return int(number)


def _streamed(rows: Rows, query: Query, limit: int | None, after: int) -> ResultPage:
    select, compiler = query.select, Compiler(query.given, _answer)
    read = _reading(query.given)
    keeps = None if select.where is None else compiler.compiled(select.where)
    shown = None if select.is_whole else _shown(compiler, select)
    results: list[bytes] = []
    size, looked_at, last = 0, 0, after
    for number, body in rows(after):
        query.given.budget.row()
        if _is_full(results, size, limit):
            return ResultPage(results=results, looked_at=looked_at, continuation=f"i:{last}")
        looked_at, last = looked_at + 1, number
        if keeps is None and shown is None:
            results.append(body)
            size += len(body)
            continue
        row = {select.item: read(body)}
        if keeps is not None and keeps(row) is not True:
            continue
        value = None if shown is None else shown(row)
        if value is not UNDEFINED:
            results.append(body if shown is None else msgspec.json.encode(value))
            size += len(results[-1])
    return ResultPage(results=results, looked_at=looked_at, continuation=None)


class _Item(dict[str, Any]):
    """An item as it is stored. Its computed properties are found by their names alone."""

    def __init__(self, stored: Mapping[str, Any], computed: Mapping[str, Evaluated]) -> None:
        super().__init__(stored)
        self._stored, self._computed = stored, computed

    def get(self, name: str, otherwise: Any = None) -> Any:
        if name in self or name not in self._computed:
            return super().get(name, otherwise)
        return self._computed[name](self._stored)


def _reading(given: Given) -> Callable[[bytes], Mapping[str, Any]]:
    """Return what makes an item of its text, with the computed properties of its container."""
    computed = {name: _computed(x, given) for name, x in given.policies.computed.items()}
    if not computed:  # the usual case
        return decoded_object
    return lambda body: _Item(decoded_object(body), computed)


def _computed(select: Select, given: Given) -> Evaluated:
    assert select.value is not None, "a container was made with it"
    value = Compiler(given, _answer).compiled(select.value.expression)
    return lambda item: value({select.item: item})


def _is_full(results: Sequence[bytes], size: int, limit: int | None) -> bool:
    return limit is not None and (len(results) >= limit or size >= _LARGEST_PAGE)


def _collected(rows: Rows, query: Query, limit: int | None, done: int) -> ResultPage:
    looked_at, size = 0, 0
    results: list[bytes] = []
    read = _reading(query.given)

    def items() -> Iterator[Names]:
        nonlocal looked_at
        for _, body in rows(0):
            query.given.budget.row()
            looked_at += 1
            yield {query.select.root: read(body)}

    continuation = None
    select = query.select
    if select.rank is not None:
        select = replace(select, rank=_scored(query, select.rank, items))
    wanted = None if limit is None else done + limit + 1
    found = _answer(select, query.given, items(), wanted)
    for value in itertools.islice(found, done, None):
        if _is_full(results, size, limit):
            continuation = f"n:{done + len(results)}"
            break
        results.append(msgspec.json.encode(value))
        size += len(results[-1])
    return ResultPage(results=results, looked_at=looked_at, continuation=continuation)


def _scored(query: Query, rank: Rank, items: Callable[[], Iterable[Names]]) -> Rank:
    """Return what ranks, with its scores: by the statistics of all items if need be."""
    select, given = query.select, query.given
    text = f"SELECT VALUE [{', '.join(score_texts(rank, weights_of(query, rank)))}]"
    if needs_statistics(rank):
        asked = parse(statistics_text(select, rank), given.budget)
        text = with_statistics(text, next(_answer(asked, given, items())))
    made = parse(f"{text} {select.from_text}", given.budget).value
    assert made is not None
    assert isinstance(made.expression, ArrayOf)
    return replace(rank, scores=made.expression.members)


def _answer(
    select: Select, given: Given, start: Iterable[Names], wanted: int | None = None
) -> Iterator[Any]:
    """Give every result of a query, or of one inside it, over the rows before its FROM.

    Of a query with an order, no more than ``wanted`` need be right.
    """
    compiler = Compiler(given, _answer)
    if select.over is not None:
        start = ({select.item: x} for x in _answer(select.over, given, start))
    shown = _shown(compiler, select)  # first, as it says what is added up of a group
    rows: Iterable[Names] = _kept(compiler, select, start)
    if select.is_aggregate:
        rows = _grouped(compiler, select.group, rows)
    query = Query(select=select, given=given)
    first = whole_number(select.offset, query, "OFFSET")
    last = None
    if select.limit is not None:
        last = first + whole_number(select.limit, query, "TOP" if select.has_top else "LIMIT")
    enough = _enough(select, last, wanted)
    if select.order:
        rows = _ordered(compiler, select, rows, enough)
    if select.rank is not None:
        rows = _ranked(compiler, query, select.rank, rows, enough)
    values: Iterator[Any] = (v for x in rows if (v := shown(x)) is not UNDEFINED)
    if select.distinct:
        values = _distinct(values, given.budget)
    elif select.group:
        values = map(canonical, values)
    return itertools.islice(values, first, last)


def _enough(select: Select, *limits: int | None) -> int | None:
    """Return how many rows of an order suffice; none means all.

    What is there twice, or undefined, is dropped behind the order.
    """
    if select.distinct or select.value is not None:
        return None
    return min((x for x in limits if x is not None), default=None)


def _kept(compiler: Compiler, select: Select, start: Iterable[Names]) -> Iterator[Names]:
    rows = compiler.rows(select.sources, start)
    if select.where is None:
        return rows
    keeps = compiler.compiled(select.where)
    return (x for x in rows if keeps(x) is True)


def _grouped(
    compiler: Compiler, by: Sequence[Column], rows: Iterable[Names]
) -> Iterator[Names]:
    """Give one row for each group, in the order in which they were met; one in all for none."""
    keys = [compiler.compiled(x.expression) for x in by]
    groups: dict[tuple[bytes, ...], Names] = {}
    for row in rows:
        given = [x(row) for x in keys]
        compiler.budget.walk(*given)
        key = tuple(map(identity, given))
        if key not in groups:
            groups[key] = {**row, GROUP: compiler.tallies()}
        compiler.add_to(groups[key][GROUP], row)
    if not by and not groups:
        yield {GROUP: compiler.tallies()}
    yield from groups.values()


def _ordered(
    compiler: Compiler, select: Select, rows: Iterable[Names], enough: int | None
) -> Iterator[Names]:
    """Sort rows, and drop what is beyond ``enough`` as soon as there is a run more.

    Many are kept as text: to free 100,000 at once holds up other threads.
    """
    keys = [compiler.compiled(x.expression) for x in select.order]
    most = None if enough is None else enough + _MAX_RUN
    found: list[tuple[Any, ...]] = []
    by_score = any(x.is_by_score for x in select.order)
    for row in rows:
        values = [x(row) for x in keys]
        if by_score and UNDEFINED in values:  # a vector index does not have it
            continue
        as_it_is = select.sources or len(found) < _MAX_RUN  # rows of a join share their item
        kept = row if as_it_is else _packed(row)
        found.append((*map(sort_key, values), kept))
        if len(found) == most:
            found = _in_order(found, select, compiler.budget)[:enough]
    return (_unpacked(x[-1]) for x in _in_order(found, select, compiler.budget))


def _in_order(
    found: list[tuple[Any, ...]], select: Select, budget: Budget
) -> list[tuple[Any, ...]]:
    for place, order in reversed([*enumerate(select.order)]):
        found = _sorted(found, place, descending=order.descending, budget=budget)
    return found


def _ranked(
    compiler: Compiler, query: Query, rank: Rank, rows: Iterable[Names], enough: int | None
) -> Iterator[Names]:
    """Give rows by their fused scores; those that are equal, by their resource ids.

    Scores are kept as numbers and rows as texts, as no collection of garbage goes through
    either.
    """
    keys = [compiler.compiled(x) for x in rank.scores]
    scores = [array("d") for _ in keys]
    rids: list[str] = []
    kept: list[bytes] = []
    for row in rows:
        for column, key in zip(scores, keys, strict=True):
            column.append(key(row))
        rids.append(str(row[query.select.item].get("_rid")))
        kept.append(_packed(row))
    best = ranked(scores, weights_of(query, rank), rids, enough)
    texts = [kept[x] for x in best]
    for several in (rids, kept):
        _free(several)
    return map(_unpacked, texts)


def _free(several: list[Any]) -> None:
    """Free what is in a list run by run: other threads go on between."""
    while several:
        del several[-_MAX_RUN:]


def _packed(row: Names) -> bytes:
    return msgspec.json.encode({k: v for k, v in row.items() if v is not UNDEFINED})


def _unpacked(kept: Names | bytes) -> Names:
    return msgspec.json.decode(kept, type=dict[str, Any]) if isinstance(kept, bytes) else kept


def _sorted(
    rows: list[tuple[Any, ...]],
    place: int,
    *,
    descending: bool,
    budget: Budget,
) -> list[tuple[Any, ...]]:
    """Sort as ``sorted`` does, but in runs: no other thread goes on while one is sorted."""
    key, runs = itemgetter(place), []
    for start in range(0, len(rows), _MAX_RUN):
        budget.seconds_left()
        runs.append(sorted(rows[start : start + _MAX_RUN], key=key, reverse=descending))
    if len(runs) == 1:
        return runs[0]
    merged = heapq.merge(*runs, key=key, reverse=descending)
    found: list[tuple[Any, ...]] = []
    for row in merged:
        budget.step()
        found.append(row)
    return found


def _distinct(values: Iterable[Any], budget: Budget) -> Iterator[Any]:
    seen: set[bytes] = set()
    for value in values:
        budget.walk(value)
        known = identity(value)
        if known not in seen:
            seen.add(known)
            yield canonical(value)


def _shown(compiler: Compiler, select: Select) -> Evaluated:
    """Return what makes a result of a row."""
    if select.value is not None:
        return compiler.compiled(select.value.expression)
    if not select.columns:
        return lambda row: row[select.item]
    return compiler.object_of([(x.name, x.expression) for x in select.columns])

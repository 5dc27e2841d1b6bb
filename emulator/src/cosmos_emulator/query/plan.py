"""Query plans: how a client that merges the answers of ranges by itself is to ask them.

A plan names what the client does (merge by order, add up, skip, take, leave out what it has
seen) and rewrites the query to what it needs of each range. The forms are those of Cosmos
DB's gateway:

* ORDER BY: ``SELECT c._rid, [{"item": c.x}] AS orderByItems, c AS payload FROM c WHERE
  ({documentdb-formattableorderbyquery-filter}) ORDER BY c.x``; clients put a condition
  in the place of the braces.
* an aggregate: ``SELECT VALUE [{"item": COUNT(1)}] FROM c``, where averages bring
  ``{"sum", "count"}``, and extremes ``{"min", "count"}`` if the client announces that it takes
  several aggregates;
* columns with aggregates: ``SELECT {"n": {"item": COUNT(1)}} AS payload FROM c``, with
  ``[{"item": c.pk}] AS groupByItems`` before it if they are grouped;
* ORDER BY RANK: a query for statistics, and one for each component, as ranking.py has them.
"""

from collections.abc import Collection, Iterator
from typing import Any, Final

from cosmos_emulator.errors import bad_request
from cosmos_emulator.query.cursor import refused
from cosmos_emulator.query.ranking import (
    needs_statistics,
    payload,
    score_texts,
    statistics_text,
)
from cosmos_emulator.query.run import Query, weights_of, whole_number
from cosmos_emulator.query.syntax import (
    AGGREGATES,
    ROOT,
    Call,
    Column,
    Expression,
    ObjectOf,
    Rank,
    Select,
    has_aggregate,
    mentions,
)

_VERSION: Final = 2
_MOST_OF_COMPONENT: Final = 120  # items that a range brings of each, at the least
_FILTER: Final = "{documentdb-formattableorderbyquery-filter}"
FEATURES: Final = (
    "Aggregate",
    "CompositeAggregate",
    "CountIf",
    "Distinct",
    "GroupBy",
    "HybridSearch",
    "MultipleAggregates",
    "MultipleOrderBy",
    "NonStreamingOrderBy",
    "NonValueAggregate",
    "OffsetAndLimit",
    "OrderBy",
    "Top",
    "WeightedRankFusion",
)
"""What a plan can ask of a client, under the names by which clients announce it."""


def plan(query: Query, announced: Collection[str]) -> dict[str, Any]:
    """Return the body of the answer to a request for a query plan.

    ``announced`` is what the client can do; 400 with the names of what it would need besides.
    """
    select = query.select
    if select.over is not None and not select.over.is_simple:
        raise refused("FROM over a subquery with an order, an aggregate, DISTINCT or a limit,")
    missing = [x for x in _needed(select) if x not in announced]
    if missing:
        raise bad_request(
            "Query contains 1 or more unsupported features. Upgrade your SDK to a version that "
            "does support the requested features: "
            + " ".join(
                f"Query contained {x}, which the calling client does not support."
                for x in missing
            )
        )
    whole = {"min": "", "max": "FF", "isMinInclusive": True, "isMaxInclusive": False}
    if select.rank is not None:
        how = {"hybridSearchQueryInfo": _Hybrid(query, select.rank).info()}
    else:
        several = "MultipleAggregates" in announced
        how = {"queryInfo": _Plan(query, several=several).info()}
    return {"partitionedQueryExecutionInfoVersion": _VERSION, **how, "queryRanges": [whole]}


def _needed(select: Select) -> Iterator[str]:
    """Give the features of clients that a query needs."""
    aggregates = [x for x in select.shown if has_aggregate(x.expression)]
    needs = {
        "Distinct": select.distinct,
        "OrderBy": len(select.order) == 1,
        "MultipleOrderBy": len(select.order) > 1,
        "Top": select.is_topped,
        "OffsetAndLimit": select.limit is not None and not select.is_topped,
        "GroupBy": bool(select.group),
        "Aggregate": bool(aggregates) and select.value is not None,
        "NonValueAggregate": bool(aggregates) and not select.value and not select.group,
        "MultipleAggregates": len(aggregates) > 1,
        "CountIf": any(mentions(x.expression, ["COUNTIF"]) for x in aggregates),
        "NonStreamingOrderBy": select.rank or any(x.is_by_score for x in select.order),
        "HybridSearch": select.rank,
        "WeightedRankFusion": select.rank and select.rank.weights,
    }
    return (x for x, needed in needs.items() if needed)


class _Plan:
    """The plan of one query. ``several``: an extreme comes with the number of its values."""

    def __init__(self, query: Query, *, several: bool) -> None:
        self._query = query
        self._select = query.select
        self._several = several

    def info(self) -> dict[str, Any]:
        select = self._select
        listed = bool(select.columns) and select.is_aggregate
        info: dict[str, Any] = {
            "distinctType": _distinct_type(select),
            "groupByExpressions": [x.text for x in select.group],
            "groupByAliases": [x.name for x in select.columns] if listed else [],
            "orderBy": ["Descending" if x.descending else "Ascending" for x in select.order],
            "orderByExpressions": [x.text for x in select.order],
            "aggregates": [
                _aggregate(x)
                for x in select.shown
                if select.value and has_aggregate(x.expression)
            ],
            "groupByAliasToAggregateType": {
                x.name: _aggregate(x) if has_aggregate(x.expression) else None
                for x in select.columns
                if listed
            },
            "rewrittenQuery": "" if select.is_simple else self._rewritten(),
            "hasSelectValue": select.value is not None,
            "hasNonStreamingOrderBy": any(x.is_by_score for x in select.order),
        }
        if select.is_topped:
            info["top"] = self._number(select.limit, "TOP")
        elif select.limit is not None:
            info["offset"] = self._number(select.offset, "OFFSET")
            info["limit"] = self._number(select.limit, "LIMIT")
        return info

    def _number(self, expression: Expression | None, what: str) -> int:
        return whole_number(expression, self._query, what)

    def _rewritten(self) -> str:
        select = self._select
        parts = [f"SELECT {self._head()} {select.from_text}{self._where()}"]
        if select.group:
            parts.append("GROUP BY " + ", ".join(x.text for x in select.group))
        if select.order:
            orders = [f"{x.text} {'DESC' if x.descending else 'ASC'}" for x in select.order]
            parts.append("ORDER BY " + ", ".join(orders))
        if self._is_cut_short and not select.has_top:
            skipped = self._number(select.offset, "OFFSET")
            taken = self._number(select.limit, "LIMIT")
            parts.append(f"OFFSET 0 LIMIT {skipped + taken}")
        return " ".join(parts)

    def _where(self) -> str:
        select = self._select
        if not select.order:
            return f" WHERE {select.where_text}" if select.where else ""
        return _where(select, f"({_FILTER})")

    @property
    def _is_cut_short(self) -> bool:
        """Whether a range need not bring more than the client hands out.

        Where the client drops what is there twice, after merging by order, it may need all.
        """
        select = self._select
        return (
            select.limit is not None and not select.is_aggregate and not select.drops_in_order
        )

    def _head(self) -> str:
        select = self._select
        if select.is_aggregate:
            return self._aggregate_head()
        # a range that knows only its own first n would leave out what others have twice
        unseen = "DISTINCT " if select.distinct else ""
        cut = select.has_top and self._is_cut_short
        top = f"TOP {self._number(select.limit, 'TOP')} " if cut else ""
        if not select.order:
            return f"{unseen}{top}{self._projection()}"
        items = ", ".join(f'{{"item": {x.text}}}' for x in select.order)
        owner = select.sources[0].name if select.item == ROOT else select.item
        shown = f"{owner}._rid, [{items}] AS orderByItems, {self._payload()} AS payload"
        return f"{unseen}{top}{shown}"

    def _projection(self) -> str:
        select = self._select
        if select.value is not None:
            return f"VALUE {select.value.text}"
        return f"VALUE {self._payload()}" if select.columns else "*"

    def _payload(self) -> str:
        return payload(self._select, self._item_of)

    def _aggregate_head(self) -> str:
        select, payload = self._select, self._payload()
        if select.value is not None and has_aggregate(select.value.expression):
            payload = f"[{payload}]"
        if not select.group:
            return f"VALUE {payload}" if select.value is not None else f"{payload} AS payload"
        items = ", ".join(f'{{"item": {x.text}}}' for x in select.group)
        return f"[{items}] AS groupByItems, {payload} AS payload"

    def _item_of(self, column: Column) -> str:
        """Return what a range brings of a column: of an aggregate, what can be added up."""
        if not has_aggregate(column.expression):
            return column.text
        function = _aggregate(column)
        argument = column.text[column.text.index("(") : column.text.rindex(")") + 1]
        inner = column.text
        if function == "Average":
            inner = f'{{"sum": SUM{argument}, "count": COUNT{argument}}}'
        elif function in {"Min", "Max"} and self._several:
            name = function.lower()
            inner = f'{{"{name}": {function.upper()}{argument}, "count": COUNT{argument}}}'
        return f'{{"item": {inner}}}'


class _Hybrid:
    """The plan of ORDER BY RANK: queries for statistics and for each component."""

    def __init__(self, query: Query, rank: Rank) -> None:
        self._query = query
        self._rank = rank
        self._weights = weights_of(query, rank)
        self._scores = score_texts(rank, self._weights)

    def info(self) -> dict[str, Any]:
        select = self._query.select
        skipped = whole_number(select.offset, self._query, "OFFSET")
        taken = whole_number(select.limit, self._query, "TOP" if select.has_top else "LIMIT")
        most = None if select.limit is None else max(_MOST_OF_COMPONENT, 2 * (skipped + taken))
        return {
            "globalStatisticsQuery": statistics_text(select, self._rank),
            "componentQueryInfos": [
                self._component(score, weight, most)
                for score, weight in zip(self._scores, self._weights, strict=True)
            ],
            "componentWithoutPayloadQueryInfos": [],
            "projectionQueryInfo": None,
            "componentWeights": [abs(x) for x in self._weights] if self._rank.weights else [],
            "skip": None if select.offset is None else skipped,
            "take": None if select.limit is None else taken,
            "requiresGlobalStatistics": needs_statistics(self._rank),
        }

    def _component(self, score: str, weight: float, most: int | None) -> dict[str, Any]:
        select = self._query.select
        top = "" if most is None else f"TOP {most} "
        shown = (
            f'{{"payload": {payload(select)}, "componentScores": [{", ".join(self._scores)}]}}'
        )
        text = (
            f'SELECT {top}{select.item}._rid, [{{"item": {score}}}] AS orderByItems, '
            f"{shown} AS payload {select.from_text}{_where(select)} "
            f"ORDER BY {score} {'ASC' if weight < 0 else 'DESC'}"
        )
        return {
            "distinctType": "None",
            "top": most,
            "offset": None,
            "limit": None,
            "orderBy": ["Ascending" if weight < 0 else "Descending"],
            "orderByExpressions": [score],
            "groupByExpressions": [],
            "groupByAliases": [],
            "aggregates": [],
            "groupByAliasToAggregateType": {},
            "rewrittenQuery": text,
            "hasSelectValue": False,
            "hasNonStreamingOrderBy": True,
        }


def _where(select: Select, *more: str) -> str:
    """Return the WHERE of what a client merges by order, with more conditions."""
    conditions = [f"({select.where_text})"] if select.where else []
    if select.value is not None and not isinstance(select.value.expression, ObjectOf):
        # what is undefined is no result, so no client may count it
        conditions.append(f"IS_DEFINED({select.value.text})")
    conditions += more
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _distinct_type(select: Select) -> str:
    if not select.distinct:
        return "None"
    ordered = [x.text for x in select.order] == [x.text for x in select.shown]
    return "Ordered" if ordered else "Unordered"


def _aggregate(column: Column) -> str:
    call = column.expression
    if not isinstance(call, Call) or call.function not in AGGREGATES:
        raise refused("An aggregate inside another expression")
    return AGGREGATES[call.function]

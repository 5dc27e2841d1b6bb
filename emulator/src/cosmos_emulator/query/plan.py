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
  ``[{"item": c.pk}] AS groupByItems`` before it if they are grouped.
"""

import json
from collections.abc import Collection, Iterator
from typing import Any, Final

from cosmos_emulator.errors import bad_request
from cosmos_emulator.query.cursor import refused
from cosmos_emulator.query.run import Query, whole_number
from cosmos_emulator.query.syntax import (
    AGGREGATES,
    Call,
    Column,
    Expression,
    ObjectOf,
    Select,
    has_aggregate,
)

_VERSION: Final = 2
_FILTER: Final = "{documentdb-formattableorderbyquery-filter}"
FEATURES: Final = (
    "Aggregate",
    "CompositeAggregate",
    "Distinct",
    "GroupBy",
    "MultipleAggregates",
    "MultipleOrderBy",
    "NonValueAggregate",
    "OffsetAndLimit",
    "OrderBy",
    "Top",
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
    return {
        "partitionedQueryExecutionInfoVersion": _VERSION,
        "queryInfo": _Plan(query, several="MultipleAggregates" in announced).info(),
        "queryRanges": [whole],
    }


def _needed(select: Select) -> Iterator[str]:
    """Give the features of clients that a query needs."""
    aggregates = [x for x in select.shown if has_aggregate(x.expression)]
    needs = {
        "Distinct": select.distinct,
        "OrderBy": len(select.order) == 1,
        "MultipleOrderBy": len(select.order) > 1,
        "Top": select.has_top,
        "OffsetAndLimit": select.limit is not None and not select.has_top,
        "GroupBy": bool(select.group),
        "Aggregate": bool(aggregates) and select.value is not None,
        "NonValueAggregate": bool(aggregates) and not select.value and not select.group,
        "MultipleAggregates": len(aggregates) > 1,
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
            "hasNonStreamingOrderBy": False,
        }
        if select.has_top:
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
        conditions = [f"({select.where_text})"] if select.where else []
        if select.value is not None and not isinstance(select.value.expression, ObjectOf):
            # what is undefined is no result, so no client may count it
            conditions.append(f"IS_DEFINED({select.value.text})")
        return " WHERE " + " AND ".join([*conditions, f"({_FILTER})"])

    @property
    def _is_cut_short(self) -> bool:
        """Whether a range need not bring more than the client hands out.

        Where the client drops what is there twice, after merging by order, it may need all.
        """
        select = self._select
        dropped = select.distinct and select.order
        return select.limit is not None and not select.is_aggregate and not dropped

    def _head(self) -> str:
        select = self._select
        if select.is_aggregate:
            return self._aggregate_head()
        # a range that knows only its own first n would leave out what others have twice
        unseen = "DISTINCT " if select.distinct and not select.order else ""
        cut = select.has_top and self._is_cut_short
        top = f"TOP {self._number(select.limit, 'TOP')} " if cut else ""
        if not select.order:
            return f"{unseen}{top}{self._projection()}"
        items = ", ".join(f'{{"item": {x.text}}}' for x in select.order)
        owner = select.item if not select.sources else select.sources[0].name
        return f"{top}{owner}._rid, [{items}] AS orderByItems, {self._payload()} AS payload"

    def _projection(self) -> str:
        select = self._select
        if select.value is not None:
            return f"VALUE {select.value.text}"
        return f"VALUE {self._payload()}" if select.columns else "*"

    def _payload(self) -> str:
        select = self._select
        if select.value is not None:
            return self._item_of(select.value)
        if not select.columns:
            return select.item
        named = [f"{json.dumps(x.name)}: {self._item_of(x)}" for x in select.columns]
        return "{" + ", ".join(named) + "}"

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

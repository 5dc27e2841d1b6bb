"""Query plans: how a client that merges the answers of ranges by itself is to ask them.

A plan names what the client does (merge by order, add up, skip, take, leave out what it has
seen) and rewrites the query to what it needs of each range. The forms are those of Cosmos
DB's gateway:

* ORDER BY: ``SELECT c._rid, [{"item": c.x}] AS orderByItems, c AS payload FROM c WHERE
  ({documentdb-formattableorderbyquery-filter}) ORDER BY c.x``; clients put a condition
  in the place of the braces.
* an aggregate: ``SELECT VALUE [{"item": COUNT(1)}] FROM c``, where averages bring
  ``{"sum", "count"}`` and extremes ``{"min", "count"}``;
* columns with aggregates: ``SELECT {"n": {"item": COUNT(1)}} AS payload FROM c``, with
  ``[{"item": c.pk}] AS groupByItems`` before it if they are grouped.
"""

import json
from typing import Any, Final

from cosmos_emulator.query.cursor import refused
from cosmos_emulator.query.run import Query, whole_number
from cosmos_emulator.query.syntax import AGGREGATES, Call, Column, Select, has_aggregate

_VERSION: Final = 2
_FILTER: Final = "{documentdb-formattableorderbyquery-filter}"


def plan(query: Query) -> dict[str, Any]:
    """Return the body of the answer to a request for a query plan."""
    select = query.select
    if select.over is not None and not select.over.is_simple:
        raise refused("FROM over a subquery with an order, an aggregate, DISTINCT or a limit,")
    whole = {"min": "", "max": "FF", "isMinInclusive": True, "isMaxInclusive": False}
    return {
        "partitionedQueryExecutionInfoVersion": _VERSION,
        "queryInfo": _info(query, select),
        "queryRanges": [whole],
    }


def _info(query: Query, select: Select) -> dict[str, Any]:
    limit = whole_number(select.limit, query, "TOP" if select.has_top else "LIMIT")
    listed = bool(select.columns) and select.is_aggregate
    info: dict[str, Any] = {
        "distinctType": _distinct_type(select),
        "groupByExpressions": [x.text for x in select.group],
        "groupByAliases": [x.name for x in select.columns] if listed else [],
        "orderBy": ["Descending" if x.descending else "Ascending" for x in select.order],
        "orderByExpressions": [x.text for x in select.order],
        "aggregates": [_aggregate(x) for x in _value_of(select) if has_aggregate(x.expression)],
        "groupByAliasToAggregateType": {
            x.name: _aggregate(x) if has_aggregate(x.expression) else None
            for x in select.columns
            if listed
        },
        "rewrittenQuery": "" if select.is_simple else _rewritten(query, select),
        "hasSelectValue": select.value is not None,
        "hasNonStreamingOrderBy": False,
    }
    if select.has_top:
        info["top"] = limit
    elif select.limit is not None:
        info |= {"offset": whole_number(select.offset, query, "OFFSET"), "limit": limit}
    return info


def _value_of(select: Select) -> list[Column]:
    return [select.value] if select.value else []


def _distinct_type(select: Select) -> str:
    if not select.distinct:
        return "None"
    ordered = [x.text for x in select.order] == [x.text for x in select.shown]
    return "Ordered" if ordered else "Unordered"


def _rewritten(query: Query, select: Select) -> str:
    where = f" WHERE {select.where_text}" if select.where else ""
    if select.order:
        where = (
            f" WHERE ({select.where_text}) AND ({_FILTER})"
            if select.where
            else (f" WHERE ({_FILTER})")
        )
    parts = [f"SELECT {_head(query, select)} {select.from_text}{where}"]
    if select.group:
        parts.append("GROUP BY " + ", ".join(x.text for x in select.group))
    if select.order:
        orders = [f"{x.text} {'DESC' if x.descending else 'ASC'}" for x in select.order]
        parts.append("ORDER BY " + ", ".join(orders))
    if select.limit is not None and not select.has_top and not select.is_aggregate:
        skipped = whole_number(select.offset, query, "OFFSET")
        taken = whole_number(select.limit, query, "LIMIT")
        parts.append(f"OFFSET 0 LIMIT {skipped + taken}")
    return " ".join(parts)


def _head(query: Query, select: Select) -> str:
    if select.is_aggregate:
        return _aggregate_head(select)
    unseen = "DISTINCT " if select.distinct and not select.order else ""
    # a range that knows only its own first n would leave out what others have twice
    top = f"TOP {whole_number(select.limit, query, 'TOP')} " if select.has_top else ""
    if not select.order:
        return f"{unseen}{top}{_projection(select)}"
    items = ", ".join(f'{{"item": {x.text}}}' for x in select.order)
    owner = select.item if not select.sources else select.sources[0].name
    return f"{top}{owner}._rid, [{items}] AS orderByItems, {_payload(select)} AS payload"


def _projection(select: Select) -> str:
    if select.value is not None:
        return f"VALUE {select.value.text}"
    if not select.columns:
        return "*"
    return f"VALUE {_payload(select)}"


def _payload(select: Select) -> str:
    if select.value is not None:
        return _item_of(select.value)
    if not select.columns:
        return select.item
    return "{" + ", ".join(f"{json.dumps(x.name)}: {_item_of(x)}" for x in select.columns) + "}"


def _aggregate_head(select: Select) -> str:
    payload = _payload(select)
    if select.value is not None and has_aggregate(select.value.expression):
        payload = f"[{payload}]"
    if not select.group:
        return f"VALUE {payload}" if select.value is not None else f"{payload} AS payload"
    items = ", ".join(f'{{"item": {x.text}}}' for x in select.group)
    return f"[{items}] AS groupByItems, {payload} AS payload"


def _item_of(column: Column) -> str:
    """Return what a range brings of a column: of an aggregate, what can be added up."""
    if not has_aggregate(column.expression):
        return column.text
    function = _aggregate(column)
    argument = column.text[column.text.index("(") : column.text.rindex(")") + 1]
    match function:
        case "Average":
            inner = f'{{"sum": SUM{argument}, "count": COUNT{argument}}}'
        case "Min" | "Max":
            name = function.lower()
            inner = f'{{"{name}": {function.upper()}{argument}, "count": COUNT{argument}}}'
        case _:
            inner = column.text
    return f'{{"item": {inner}}}'


def _aggregate(column: Column) -> str:
    call = column.expression
    if not isinstance(call, Call) or call.function not in AGGREGATES:
        raise refused("An aggregate inside another expression")
    return AGGREGATES[call.function]

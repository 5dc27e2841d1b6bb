"""Queries drawn from a grammar, and what is right of their answers over any number of ranges.

What one range answers, which holds all items, is right by definition. A client that merges what
several ranges answer must come to the same: in the same order where the query gives one, else
in any.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgspec
from azure.cosmos import DatabaseProxy, PartitionKey
from hypothesis import strategies as st

from cosmos_emulator.testing import Account

_PATHS: Final = ("c.n", "c.s", "c.b", "c.o.x", "c.none")
_CONDITIONS: Final = (
    *("c.n > 3", "c.n BETWEEN 1 AND 6", "c.s != 'b'", "IS_DEFINED(c.n)", "c.b", "NOT c.b"),
    *("c.n IN (1, 2, 3)", "c.s LIKE '%b%'", "ARRAY_LENGTH(c.tags) > 1", "c.n % 2 = 0"),
    *("(c.n ?? 0) < 2", "c.b ? c.n > 1 : c.o.x = 1", "NOT IS_DEFINED(c.s)", "c.none = 1"),
    *("STARTSWITH(c.s, 'a')", "c.o = {x: 1}", 'c["s"] || \'x\' = "ax"'),
    "EXISTS (SELECT VALUE t FROM t IN c.tags WHERE t = 'red')",
)
_SHOWN: Final = (
    *("*", "c", "c.id, c.n", "VALUE c.n", "VALUE {a: c.n, b: c.s}", "c.id, c.o", "VALUE c.o"),
    *("c.n + 1 AS m, c.s", "VALUE [c.n, c.s]", "VALUE UPPER(c.s)", "VALUE c.none", "c.none"),
    *("c.id, ARRAY(SELECT VALUE t FROM t IN c.tags) AS tags", "VALUE c.n > 2 ? c.s : c.n"),
    "VALUE (SELECT VALUE COUNT(1) FROM t IN c.tags)",
)
_DISTINCT: Final = (
    *("VALUE c.n", "VALUE c.s", "VALUE c.b", "VALUE c.o", "VALUE c.tags", "c.n, c.s", "c.b"),
    *(
        "VALUE {a: c.b, b: c.o.x}",
        "VALUE [c.b, c.s]",
        "c.o.x, c.b",
        "VALUE c.n % 2",
        "c.o, c.n",
    ),
)
_JOINED: Final = ("c.id, t", "VALUE t", "VALUE {i: c.id, t: t}")
_AGGREGATES: Final = tuple(
    f"{name}({of})"
    for name in ("COUNT", "SUM", "AVG", "MIN", "MAX")
    for of in ("1", "c.n", "c.s", "c.none", "c.n + c.o.x", "ARRAY_LENGTH(c.tags)")
)
_KEYS: Final = ("c.n", "c.b", "c.s", "c.o.x", "c.none", "c.o")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A query; ``whole`` is the same without its limit, if it has one and no order."""

    text: str
    is_ordered: bool = False
    whole: str | None = None


def fill(
    account: Account,
    database: DatabaseProxy,
    name: str,
    held: Iterable[dict[str, Any]],
    ranges: int,
    **policies: Any,
) -> None:
    """Make a container with these items, and split it until it has so many ranges."""
    container = database.create_container(name, PartitionKey("/pk"), **policies)
    for item in held:
        container.create_item(item)
    names = ["0"]
    for _ in range(ranges - 1):
        children = account.split(database.id, name, range=names.pop(0))
        names += [x["id"] for x in children]


def items(random: Random, count: int, share: float) -> Iterator[dict[str, Any]]:
    """Make items of few different values, so that many are there twice.

    ``share`` of them have a value: where some miss it, clients refuse many an ORDER BY.
    """
    for number in range(count):
        made: dict[str, Any] = {"id": f"i{number}", "pk": f"k{random.randrange(count)}"}
        made |= {"o": {"x": random.randrange(3)}, "b": random.random() < 0.5}
        if random.random() < share:
            made["n"] = random.choice([random.randrange(8), random.randrange(8) / 2])
        if random.random() < share:
            made["s"] = random.choice("abc") * random.randrange(3)
        made["tags"] = random.sample(["red", "blue", "green"], random.randrange(4))
        yield made


def _some(values: Sequence[str], least: int, most: int) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=most, unique=True)


@st.composite
def queries(draw: st.DrawFn) -> Asked:
    kind = draw(st.sampled_from(_KINDS))
    conditions = draw(_some(_CONDITIONS, 0, 2))
    joint = draw(st.sampled_from([" AND ", " OR "]))
    return kind(draw, f" WHERE {joint.join(conditions)}" if conditions else "")


def _plain(draw: st.DrawFn, where: str) -> Asked:
    shown = draw(st.sampled_from(_SHOWN))
    by = draw(st.one_of(st.just([]), _some(_PATHS, 0, 2).map(lambda x: [*x, "c.id"])))
    return _limited(draw, "SELECT ", f"{shown} FROM c{where}", by)


def _distinct(draw: st.DrawFn, where: str) -> Asked:
    shown = draw(st.sampled_from(_DISTINCT))
    paths = shown.removeprefix("VALUE ").split(", ")
    orders = [[], ["c.id"], [draw(st.sampled_from(_PATHS)), "c.id"]]
    ways = [paths, paths, paths] if {*_PATHS}.issuperset(paths) else orders
    by = draw(st.sampled_from([*orders, *ways]))
    return _limited(draw, "SELECT DISTINCT ", f"{shown} FROM c{where}", by)


def _joined(draw: st.DrawFn, where: str) -> Asked:
    shown = draw(st.sampled_from(_JOINED))
    distinct = draw(st.sampled_from(["", "DISTINCT "]))
    source = draw(st.sampled_from(["t IN c.tags", "(SELECT VALUE x FROM x IN c.tags) AS t"]))
    by = draw(st.sampled_from([[], ["c.id"], ["c.b", "c.id"]]))
    rest = f"{shown} FROM c JOIN {source}{where}"
    return _limited(draw, f"SELECT {distinct}", rest, [] if distinct else by)


def _nested(draw: st.DrawFn, where: str) -> Asked:
    inner = draw(st.sampled_from(["SELECT *", "SELECT c.id, c.n, c.s", "SELECT DISTINCT c.n"]))
    shown = draw(
        st.sampled_from(["VALUE d.n", "d.s, d.n", "VALUE COUNT(1)", "DISTINCT VALUE d.n"])
    )
    return Asked(text=f"SELECT {shown} FROM ({inner} FROM c{where}) AS d")


def _limited(draw: st.DrawFn, select: str, rest: str, by: Sequence[str]) -> Asked:
    ways = [f"{x} {draw(st.sampled_from(['ASC', 'DESC']))}" for x in by]
    order = " ORDER BY " + ", ".join(ways) if by else ""
    whole = f"{select}{rest}{order}"
    taken, skipped = draw(st.integers(1, 12)), draw(st.integers(0, 5))
    text = draw(
        st.sampled_from(
            [
                whole,
                f"{select}TOP {taken} {rest}{order}",
                f"{whole} OFFSET {skipped} LIMIT {taken}",
            ]
        )
    )
    if text == whole or by:
        return Asked(text=text, is_ordered=bool(by))
    return Asked(text=text, whole=whole)


def _value_of_all(draw: st.DrawFn, where: str) -> Asked:
    join = draw(st.sampled_from(["", " JOIN t IN c.tags"]))
    return Asked(text=f"SELECT VALUE {draw(st.sampled_from(_AGGREGATES))} FROM c{join}{where}")


def _grouped(draw: st.DrawFn, where: str) -> Asked:
    by, some = draw(_some(_KEYS, 0, 2)), draw(_some(_AGGREGATES, 1, 2))
    named = [f"{x} AS g{n}" for n, x in enumerate(by)]
    named += [f"{x} AS a{n}" for n, x in enumerate(some)]
    group = f" GROUP BY {', '.join(by)}" if by else ""
    text = f"SELECT {', '.join(named)} FROM c{where}{group}"
    taken = draw(st.integers(1, 4))
    if group and draw(st.booleans()):
        return Asked(text=f"{text} OFFSET 0 LIMIT {taken}", whole=text)
    return Asked(text=text)


_KINDS: Final = (
    *(_plain, _plain, _distinct, _distinct, _distinct, _joined, _nested),
    *(_value_of_all, _grouped),
)


def differs(asked: Asked, right: Mapping[str, Sequence[Any]], merged: Sequence[Any]) -> bool:
    """Say whether what a client has merged is not right; ``right`` is by query text."""
    wanted = [_text(x) for x in right[asked.text]]
    # Of nothing, clients make null where a range makes no result.
    found = [] if [*merged] == [None] else [_text(x) for x in merged]
    if asked.is_ordered:
        return found != wanted
    if asked.whole is not None:
        possible = Counter(_text(x) for x in right[asked.whole])
        return len(found) != len(wanted) or not Counter(found) <= possible
    return Counter(found) != Counter(wanted)


def _text(value: Any) -> bytes:
    return msgspec.json.encode(_rounded(value), order="sorted")


def _rounded(value: Any) -> Any:
    """Sums of halves are exact; averages of them differ by the order of adding up."""
    if isinstance(value, dict):
        return {k: _rounded(v) for k, v in value.items() if not k.startswith("_")}
    if isinstance(value, list):
        return [_rounded(x) for x in value]
    return round(float(value), 9) if type(value) in (int, float) else value

"""Random queries, and what is right of their answers over any number of ranges.

What one range answers, which holds all items, is right by definition. A client that merges what
several ranges answer must come to the same: in the same order where the query gives one, else
in any.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

_PATHS = ("c.n", "c.s", "c.b", "c.o.x", "c.none")
_CONDITIONS = (
    *("c.n > 3", "c.n BETWEEN 1 AND 6", "c.s != 'b'", "IS_DEFINED(c.n)", "c.b", "NOT c.b"),
    *("c.n IN (1, 2, 3)", "c.s LIKE '%b%'", "ARRAY_LENGTH(c.tags) > 1", "c.n % 2 = 0"),
    "EXISTS (SELECT VALUE t FROM t IN c.tags WHERE t = 'red')",
)
_AGGREGATES = ("COUNT(1)", "COUNT(c.n)", "SUM(c.n)", "AVG(c.n)", "MIN(c.n)", "MAX(c.n)")


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A query; ``whole`` is the same without its limit, if it has one and no order."""

    text: str
    is_ordered: bool = False
    whole: str | None = None


def items(random: Random, count: int) -> Iterator[dict[str, Any]]:
    """Make items of few different values, so that many are there twice.

    In half of all sets some values are missing. Clients then refuse many an ORDER BY.
    """
    share = random.choice([1.0, 0.8])
    for number in range(count):
        made: dict[str, Any] = {"id": f"i{number}", "pk": f"k{random.randrange(count)}"}
        made |= {"o": {"x": random.randrange(3)}, "b": random.random() < 0.5}
        if random.random() < share:
            made["n"] = random.choice([random.randrange(8), random.randrange(8) / 2])
        if random.random() < share:
            made["s"] = random.choice("abc") * random.randrange(3)
        made["tags"] = random.sample(["red", "blue", "green"], random.randrange(4))
        yield made


def query(random: Random) -> Asked:
    kind = random.choice([_plain, _plain, _distinct, _distinct, _value_of_all, _grouped])
    return kind(random, _where(random))


def _where(random: Random) -> str:
    some = random.sample(_CONDITIONS, random.randrange(3))
    return " WHERE " + random.choice([" AND ", " OR "]).join(some) if some else ""


def _plain(random: Random, where: str) -> Asked:
    join = random.random() < 0.3
    shown = random.choice(
        ["*", "c.id, c.n", "VALUE c.n", "VALUE {a: c.n, b: c.s}", "c.id, c.o"]
    )
    if join:
        shown = random.choice(["c.id, t", "VALUE t"])
    source = f"FROM c{' JOIN t IN c.tags' if join else ''}{where}"
    by = ["c.id"] if join else [*random.sample(_PATHS, random.randrange(3)), "c.id"]
    return _limited(
        random,
        "SELECT ",
        f"{random.choice(shown)} {source}",
        [] if random.random() < 0.4 else by,
    )


def _distinct(random: Random, where: str) -> Asked:
    paths = random.sample(_PATHS, random.choice([1, 1, 2]))
    shown = f"VALUE {paths[0]}" if len(paths) == 1 else ", ".join(paths[:2])
    if shown == "c.o.x, c.n":
        shown = "c.o, c.n"
    by = random.choice([[], paths, [*random.sample(_PATHS, 1), "c.id"], ["c.id"]])
    return _limited(random, "SELECT DISTINCT ", f"{shown} FROM c{where}", by)


def _limited(random: Random, select: str, rest: str, by: Sequence[str]) -> Asked:
    ways = [f"{x} {random.choice(['ASC', 'DESC'])}" for x in by]
    order = " ORDER BY " + ", ".join(ways) if by else ""
    whole = f"{select}{rest}{order}"
    taken = random.randrange(1, 12)
    text = random.choice(
        [
            whole,
            f"{select}TOP {taken} {rest}{order}",
            f"{select}{rest}{order} OFFSET {random.randrange(5)} LIMIT {taken}",
        ]
    )
    if text == whole or by:
        return Asked(text=text, is_ordered=bool(by))
    return Asked(text=text, whole=whole)


def _value_of_all(random: Random, where: str) -> Asked:
    return Asked(text=f"SELECT VALUE {random.choice(_AGGREGATES)} FROM c{where}")


def _grouped(random: Random, where: str) -> Asked:
    by = random.sample(["c.b", "c.s", "c.o.x"], random.randrange(3))
    some = random.sample(_AGGREGATES, random.randrange(1, 3))
    named = [f"{x} AS g{n}" for n, x in enumerate(by)]
    named += [f"{x} AS a{n}" for n, x in enumerate(some)]
    group = f" GROUP BY {', '.join(by)}" if by else ""
    return Asked(text=f"SELECT {', '.join(named)} FROM c{where}{group}")


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

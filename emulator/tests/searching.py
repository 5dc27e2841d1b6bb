"""Items to search, searches drawn from a grammar, and a second way to what they must find."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st

VECTORS: Final = ("cosine", "dotproduct", "euclidean")
_WORDS: Final = ("red", "green", "big", "small", "car", "house")
_TERMS: Final = (*_WORDS, "big car", "red red", "blue")

Item = dict[str, Any]
Scoring = Callable[[Item], float | None]
"""Gives the score of an item, if it has one: a higher one is better."""


def searched_items(random: Random, count: int) -> Iterator[Item]:
    """Make items with vectors of four dimensions and texts of few words; some lack them."""
    for number in range(count):
        made: Item = {"id": f"i{number}", "_rid": f"r{number:04}", "pk": f"k{number}"}
        made["n"] = random.randrange(9)
        if random.random() < 0.9:
            made["vector"] = [random.uniform(-1, 1) for _ in range(4)]
        if random.random() < 0.9:
            made["text"] = " ".join(random.choices(_WORDS, k=random.randrange(1, 9)))
        yield made


def distance(kind: str, one: Sequence[float], other: Sequence[float]) -> float:
    a, b = np.array(one), np.array(other)
    match kind:
        case "cosine":
            return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
        case "dotproduct":
            return float(a @ b)
        case _:
            return float(np.linalg.norm(a - b))


def near(kind: str, target: Sequence[float]) -> Scoring:
    sign = -1 if kind == "euclidean" else 1
    return lambda x: sign * distance(kind, x["vector"], target) if "vector" in x else None


def bm25(everything: Sequence[Item], terms: Sequence[str]) -> Scoring:
    texts = [x["text"] for x in everything if "text" in x]
    hits = {t: sum(_times(t, x) > 0 for x in texts) for t in terms}
    mean = sum(len(x.split()) for x in texts) / len(everything)

    def score(item: Item) -> float | None:
        if "text" not in item:
            return None
        found = 0.0
        for term in terms:
            idf = math.log(1 + (len(everything) - hits[term] + 0.5) / (hits[term] + 0.5))
            long = 1.2 * (0.25 + 0.75 * len(item["text"].split()) / mean)
            times = _times(term, item["text"])
            found += idf * times * 2.2 / (times + long)
        return found

    return score


def fused(
    kept: Sequence[Item], scorings: Sequence[Scoring], weights: Sequence[float]
) -> dict[str, float]:
    """Return the sum of reciprocal ranks of each item, by its id."""
    total: defaultdict[str, float] = defaultdict(float)
    for weight, scoring in zip(weights, scorings, strict=True):
        column = [scoring(x) for x in kept]
        ordered = sorted({x for x in column if x is not None}, reverse=weight >= 0)
        for item, score in zip(kept, column, strict=True):
            rank = len(ordered) if score is None else ordered.index(score)
            total[item["id"]] += abs(weight) / (61 + rank)
    return {k: round(v, 12) for k, v in total.items()}


@dataclass(frozen=True, kw_only=True)
class Searched:
    """A search with its parameters, and the score that each item it may find must have."""

    text: str
    parameters: list[dict[str, Any]]
    scores: dict[str, float]
    skipped: int
    taken: int

    @property
    def best(self) -> list[float]:
        found = sorted(self.scores.values(), reverse=True)
        return found[self.skipped : self.skipped + self.taken]

    def found(self, ids: Sequence[str]) -> list[float]:
        """Return the scores of what was found, in its order: those that are equal may swap."""
        return [self.scores[x] for x in ids]


@st.composite
def searches(draw: st.DrawFn, everything: Sequence[Item], usual: str) -> Searched:
    """Draw a search; ``usual`` is the distance that the policies of the container give."""
    target = [draw(st.integers(-9, 9)) / 10 + 0.05 for _ in range(4)]
    least = draw(st.integers(-1, 5))
    skipped, taken = draw(st.integers(0, 5)), draw(st.integers(1, 20))
    kept = [x for x in everything if x["n"] > least]
    kind = draw(st.sampled_from(VECTORS))
    vectors = {
        "VectorDistance(c.vector, @v)": near(usual, target),
        f"VectorDistance(c.vector, {target})": near(usual, target),
        f"VectorDistance(c.vector, @v, false, {{distanceFunction: '{kind}'}})": near(
            kind, target
        ),
    }
    ask, scoring = draw(st.sampled_from([*vectors.items()]))
    if draw(st.booleans()):
        order = ask
        scores = {x["id"]: y for x in kept if (y := scoring(x)) is not None}
    else:
        order, scores = draw(_ranks(everything, kept, ask, scoring))
    where = f"WHERE c.n > {least} ORDER BY {order} OFFSET {skipped} LIMIT {taken}"
    return Searched(
        text=f"SELECT VALUE c.id FROM c {where}",
        parameters=[{"name": "@v", "value": target}, {"name": "@t", "value": "big car"}],
        scores={k: round(v, 9) for k, v in scores.items()},
        skipped=skipped,
        taken=taken,
    )


@st.composite
def _ranks(
    draw: st.DrawFn, everything: Sequence[Item], kept: Sequence[Item], ask: str, near: Scoring
) -> tuple[str, dict[str, float]]:
    asked: dict[str, Scoring] = {ask: near}
    for _ in range(draw(st.integers(1, 2))):
        terms = draw(st.lists(st.sampled_from(_TERMS), min_size=1, max_size=3))
        written = ", ".join("@t" if x == "big car" else f"'{x}'" for x in terms)
        asked[f"FullTextScore(c.text, {written})"] = bm25(everything, terms)
    names = draw(st.permutations([*asked]))[: draw(st.integers(1, 3))]
    scorings = [asked[x] for x in names]
    if len(names) == 1:
        return f"RANK {names[0]}", fused(kept, scorings, [1])
    weights = draw(st.one_of(st.none(), st.lists(st.integers(-2, 3), min_size=3, max_size=3)))
    used = (weights or [1, 1, 1])[: len(names)]
    last = f", {used}" if weights else ""
    return f"RANK RRF({', '.join(names)}{last})", fused(kept, scorings, used)


def _times(term: str, text: str) -> int:
    return len(re.findall(rf"(?=\b{term}\b)", text))

"""ORDER BY RANK: what it is made of, and how scores become an order.

A score of full text needs statistics of all items. So ranking goes in steps, over one range as
over several: a query for the statistics, whose numbers take the places of ``{…}`` in the texts
of the scores; the scores of each item; and reciprocal rank fusion. Clients that merge what
ranges answer do the same, by a plan of the same texts.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cosmos_emulator.query.given import package_of_extra
from cosmos_emulator.query.syntax import Column, Component, Rank, Select

_PLACE: Final = "{{documentdb-formattablehybridsearchquery-{}}}"
_SMOOTHING: Final = 60  # of reciprocal ranks, as clients have it
_LOWEST: Final = "-1.79769e+308"
_HIGHEST: Final = "1.79769e+308"


def payload(select: Select, shown: Callable[[Column], str] = lambda column: column.text) -> str:
    """Return the text of what a query shows of an item, as one value."""
    if select.value is not None:
        return shown(select.value)
    if not select.columns:
        return select.item
    return "{" + ", ".join(f"{json.dumps(x.name)}: {shown(x)}" for x in select.columns) + "}"


def statistics_text(select: Select, rank: Rank) -> str:
    """Return the query for the statistics of all items, whether they are wanted or not."""
    listed = ", ".join(_statistics(x) for x in _full_texts(rank))
    return (
        f"SELECT COUNT(1) AS documentCount, [{listed}] AS fullTextStatistics {select.from_text}"
    )


def needs_statistics(rank: Rank) -> bool:
    return bool(_full_texts(rank))


def score_texts(rank: Rank, weights: Sequence[float]) -> list[str]:
    """Return the score of each component, where an item without one comes last."""
    full_texts = _full_texts(rank)
    found: list[str] = []
    for component, weight in zip(rank.components, weights, strict=True):
        last = _HIGHEST if weight < 0 else _LOWEST
        if component.function == "VECTORDISTANCE":
            text = f"_VectorScore({', '.join(component.arguments)})"
        else:
            text = _full_text_score(component, full_texts.index(component))
            last = last if weight < 0 else "-1"
        found.append(f"({text} ?? {last})")
    return found


def with_statistics(text: str, statistics: Mapping[str, Any]) -> str:
    """Put numbers in the place of ``{…}``, as clients do."""
    text = text.replace(_PLACE.format("totaldocumentcount"), str(statistics["documentCount"]))
    for number, one in enumerate(statistics["fullTextStatistics"]):
        words, hits = one["totalWordCount"], ",".join(map(str, one["hitCounts"]))
        text = text.replace(_PLACE.format(f"totalwordcount-{number}"), str(words))
        text = text.replace(_PLACE.format(f"hitcountsarray-{number}"), f"[{hits}]")
    return text


def ranked(
    scores: Sequence[Sequence[float]],
    weights: Sequence[float],
    rids: Sequence[str],
    most: int | None,
) -> list[int]:
    """Return the places of items, the best first, and of equal ones by their resource ids.

    ``scores`` are those by component. Equal scores have the same rank, and a weight below zero
    ranks the lowest score first. Other threads go on while numpy sorts.
    """
    numpy = package_of_extra("numpy", "ORDER BY RANK")
    fused = numpy.zeros(len(rids))
    for some, weight in zip(scores, weights, strict=True):
        column = numpy.array(some)
        ranks = numpy.unique(column if weight < 0 else -column, return_inverse=True)[1]
        fused += abs(weight) / (_SMOOTHING + 1 + ranks)
    places: list[int] = numpy.lexsort((numpy.array(rids), -fused))[:most].tolist()
    return places


def _full_texts(rank: Rank) -> list[Component]:
    return [x for x in rank.components if x.function == "FULLTEXTSCORE"]


def _statistics(component: Component) -> str:
    path, *terms = component.arguments
    hits = ", ".join(f"COUNTIF(FullTextContains({path}, {x}))" for x in terms)
    return f'{{"totalWordCount": SUM(_FullTextWordCount({path})), "hitCounts": [{hits}]}}'


def _full_text_score(component: Component, number: int) -> str:
    path, *terms = component.arguments
    places = ("totaldocumentcount", f"totalwordcount-{number}", f"hitcountsarray-{number}")
    return (
        f"_FullTextScore({path}, [{', '.join(terms)}], "
        f"{', '.join(_PLACE.format(x) for x in places)})"
    )

"""Figures by groups of changes: what a SELECT with GROUP BY says, in SQL of Spark.

Spark keeps the running figures; each batch gives the groups that changed, whole, and these
take the place of what the table has. A repeated batch gives the same figures again. Which
columns name a group, Spark's own plan of the SELECT says, in the text of EXPLAIN: Spark
Connect has no other. Texts in it have no quotes; what cannot be told apart is refused.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from changefeed.pipeline.settings import AggregateSettings
from changefeed.pipeline.source.body_schema import spark_message
from changefeed.pipeline.tables.merge import Merge
from changefeed.runtime.errors import UserError

_VIEW = "changes"
_FIELDS: Final = "spark.sql.debug.maxToStringFields"
_ALL: Final = "100000"
_WANTED: Final = "it has to be one SELECT over changes with GROUP BY"
_NUMBER: Final = r"#\d+L?(-T\d+ms)?"
"""What a plan adds to the name of a column: its number, and its watermark."""


def aggregated(changes: DataFrame, settings: AggregateSettings) -> tuple[DataFrame, Merge]:
    """Return the figures, and how they are merged.

    Raise ``UserError`` for what is no SELECT with GROUP BY over these changes.
    """
    try:
        if settings.watermark is not None:
            changes = changes.withWatermark(
                "committed_at", f"{settings.watermark * 1000:.0f} milliseconds"
            )
        changes.createOrReplaceTempView(_VIEW)
        figures = changes.sparkSession.sql(settings.select)
        names = figures.columns  # a client of Spark Connect is told here what is wrong
    except AnalysisException as error:
        raise _refused(settings, spark_message(error)) from error
    if not figures.isStreaming:
        raise _refused(settings, _WANTED)
    groups = _group_columns(_analyzed(figures.sparkSession, settings.select), names, settings)
    return figures, Merge(keys=groups, nullable=True)


def _group_columns(
    plan: str, names: Sequence[str], settings: AggregateSettings
) -> Sequence[str]:
    """Return the columns that name a group: one for each expression of GROUP BY."""
    figures, _, below = plan.partition("\n+- ")
    node, _, lists = figures.lstrip("~").partition(" ")
    if node != "Aggregate":
        raise _refused(settings, _WANTED)
    *grouped, selected = (_parts(x[1:-1]) for x in _parts(lists))
    if len(selected) != len(names):
        raise _refused(
            settings,
            "brackets in a text, or commas in a name, cannot be told from others in Spark's "
            "plan: rename it, or compute it in FROM (SELECT ... FROM changes)",
        )
    columns = {
        y: name for x, name in zip(selected, names, strict=True) for y in _texts(x, name)
    }
    found = []
    for group in chain.from_iterable(grouped):
        text = f"{group}.start" if _is_window(group, below) else group
        if text not in columns:
            raise _refused(
                settings,
                f"select {re.sub(_NUMBER, '', text)} as a column: each row has to say which "
                f"group it is of",
            )
        found.append(columns[text])
    if not found:
        raise _refused(settings, "it has no GROUP BY")
    return found


def _analyzed(spark: SparkSession, select: str) -> str:
    """Return Spark's plan, with all columns in it."""
    before = spark.conf.get(_FIELDS)
    spark.conf.set(_FIELDS, _ALL)
    try:
        rows = spark.sql(f"EXPLAIN EXTENDED {select}").collect()
    finally:
        spark.conf.set(_FIELDS, str(before))
    found = str(rows[0][0]).partition("== Analyzed Logical Plan ==\n")[2]
    return found[found.index("\n") + 1 :]  # the first line has the types of the columns


def _parts(listed: str) -> Sequence[str]:
    """Return what a plan lists, by the commas that are in no brackets."""
    found: list[str] = []
    depth = 0
    for piece in listed.split(", "):
        if depth:
            found[-1] += f", {piece}"
        else:
            found.append(piece)
        depth += sum(map(piece.count, "([{")) - sum(map(piece.count, ")]}"))
    return found


def _texts(column: str, name: str) -> Iterator[str]:
    """Yield a column as the plan has it, and what it is a name for."""
    yield column
    named = re.fullmatch(f"(.*) AS {re.escape(name)}{_NUMBER}", column, re.DOTALL)
    if named:
        yield named[1]


def _is_window(group: str, below: str) -> bool:
    """Return whether Spark has made this column of a time window, by a function that no
    SELECT can call, as the first column of a step of its plan.
    """
    made = (f" AS {group},", f"]], [{group},")
    steps = below.split("\n")
    return any("precisetimestampconversion(" in x and any(y in x for y in made) for x in steps)


def _refused(settings: AggregateSettings, reason: str) -> UserError:
    return UserError(f"the table {settings.name!r} cannot be kept: {reason}")

"""What is said of pipeline."""

import os
from pathlib import Path
from typing import Final
from unittest.mock import patch

from changefeed.cli.commands.pipeline import PipelineFlags
from changefeed.pipeline.body_shape import body_schema_of
from changefeed.pipeline.items.options import ItemOptions
from changefeed.pipeline.java import java_home
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.options import Options

from .table import Case, Table

PIPELINE: Final = Table("The pipeline")


def _settings(*sets: str, **environ: str) -> Case:
    def case() -> object:
        given = {f"CHANGEFEED_PIPELINE__{name}": value for name, value in environ.items()}
        with patch.dict(os.environ, given):
            return PipelineFlags(feed="f", directory="d", sets=[*sets]).settings()

    return case


for _cause, _case in {
    "a variable with a typo": _settings(DIRECTRY="x"),
    "a variable of a section that there is not": _settings(LATST__INTERVAL="1"),
    "a variable within one value": _settings(FEED__ADDRESS="x"),
    "a variable of a setting of Spark": _settings(SPARK__A="x"),
    "an aggregate with a typo": _settings('aggregates=[{"name": "a", "selct": "SELECT 1"}]'),
    "an aggregate of a name that is taken": _settings(
        'aggregates=[{"name": "latest", "select": "SELECT 1"}]'
    ),
    "a list as a setting of Spark": _settings('spark={"spark.x": [1]}'),
    "a start that is no time with a zone": _settings(START="2026-01-31"),
    "a flag whose name has spaces": _settings("a b c=1"),
}.items():
    PIPELINE.says(_cause)(_case)
PIPELINE.each(
    lambda given: Options.of({"feed": "eventlog:/log", **given}),
    {
        "an option that there is not": {"maxChanges": "5"},
        "a schema of bodies as an option": {"bodySchema": "n INT"},
        "a start that is no time": {"startingAt": "yesterday"},
        "a column that there is not": {"columns": "key,value"},
        "a limit of nothing": {"maxChangesPerBatch": "0"},
    },
)
PIPELINE.each(
    lambda given: ItemOptions.of({"feed": "cosmos://h/d/c", **given}),
    {
        "items of a log": {"feed": "eventlog:/log"},
        "ids that are no JSON": {"itemIds": "i1, i2"},
        "a query beside ids": {"query": "SELECT * FROM c", "itemIds": '["i1"]'},
        "filters for a query of one's own": {
            "query": "SELECT * FROM c",
            "pushFilters": "true",
        },
        "a column that results need not have": {"query": "SELECT c.a FROM c", "columns": "key"},
        "a field of items among the columns": {"columns": "price"},
    },
)
PIPELINE.each(
    body_schema_of,
    {"a schema of bodies that there are not": [], "one of bodies without fields": ["[1]", "{"]},
)
PIPELINE.each(Offset.of, {"an offset of another source": "[]"})


@PIPELINE.says("a JAVA_HOME without a Java")
def _no_java(folder: Path) -> object:
    return java_home({"JAVA_HOME": str(folder), "PATH": ""})

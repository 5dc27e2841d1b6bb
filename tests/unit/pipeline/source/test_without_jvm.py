"""What other Sparks have not: Connect and serverless Spark no JVM, and 4.0 no filters."""

import ast
from pathlib import Path

from tests.support.processes import python

PIPELINE = Path(__file__).parents[4] / "pipeline"
OF_A_JVM = {"_jvm", "_jdf", "_jsc", "_sc", "sparkContext"}


def touched(*files: Path) -> set[str]:
    return {
        x.attr
        for file in files
        for x in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(x, ast.Attribute) and x.attr in OF_A_JVM
    }


def test_nothing_but_the_local_session_touches_a_jvm() -> None:
    local = PIPELINE / "session.py"
    assert touched(local) == {"sparkContext"}, "of the local command"
    assert not touched(*(x for x in PIPELINE.rglob("*.py") if x != local))


IN_SPARK_4_0 = """
from pyspark.sql import datasource
for name in ("Filter", *(x.__name__ for x in datasource.Filter.__subclasses__())):
    delattr(datasource, name)
from changefeed.runtime.errors import UserError
from changefeed.pipeline.items.spark import ItemSource
from changefeed.pipeline.source.spark import ChangefeedSource
for made, feed in ((ChangefeedSource, "eventlog:/log"), (ItemSource, "cosmos://h/d/c")):
    source = made({"feed": feed})
    source.reader(source.schema())
    try:
        made({"feed": feed, "pushFilters": "true"}).reader(source.schema())
    except UserError as refused:
        assert "before 4.1" in str(refused)
    else:
        raise AssertionError("filters would not be pushed, without a word")
"""


def test_the_sources_do_without_filters_which_spark_4_0_has_not() -> None:
    python(IN_SPARK_4_0)

"""Bodies, parsed where they are read: in Spark, in parallel and without Python.

A Python data source hands over columns and cannot have Spark parse one of them. So this is
a function over the changes, not an option of the source.

    with_bodies(changes, "kind STRING, total DOUBLE")    a schema, as DDL
    with_bodies(changes, "variant")                      any JSON

No text stops a query. ``value`` has what fits, as Spark's ``from_json`` takes it: a STRING
takes any JSON, as text; an INT does not take ``"1"`` or ``1.5``; names are case-sensitive.
``rescued`` has the text of a body that is no JSON object, or in which a field of the schema
did not fit. Fields that the schema does not name are in ``body`` only, which has every byte.
"""

from typing import Final

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql.types import StringType, StructField, StructType

from changefeed.runtime.errors import UserError

VARIANT: Final = "variant"
VALUE: Final = "value"
RESCUED: Final = "rescued"

_CORRUPT: Final = "__corrupt"
"""What Spark calls a column of the text that it could not parse as a whole."""


def with_bodies(changes: DataFrame, schema: str) -> DataFrame:
    """Add ``value``, the parsed body, and ``rescued``, the text of one that did not fit.

    ``schema`` is the DDL of a body, or ``variant``. Raise ``UserError`` if it is
    neither, or if there is no column ``body``.
    """
    if "body" not in changes.columns:
        raise UserError("there is no column 'body' to parse: name it in columns")
    if schema.strip().lower() == VARIANT:
        return _as_variant(changes)
    try:
        wanted = StructType.fromDDL(schema)
        if isinstance(wanted, StructType) and len(set(wanted.names)) == len(wanted.names) > 0:
            return _as_struct(changes, wanted)
        reason = "name each column once, and at least one"
    except (AnalysisException, IllegalArgumentException) as error:
        reason = spark_message(error)
    raise UserError(
        f"the schema of bodies {schema!r} is neither 'variant' nor columns as in "
        f"'kind STRING, total DOUBLE': {reason}"
    )


def spark_message(error: Exception) -> str:
    """Return the first line of what Spark says, without its own code in brackets."""
    lines = [x.strip() for x in str(error).splitlines() if x.strip()]
    first = lines[0] if lines else type(error).__name__
    return first.partition("] ")[2] or first


def _as_variant(changes: DataFrame) -> DataFrame:
    value = F.try_parse_json("body")
    return changes.withColumn(VALUE, value).withColumn(
        RESCUED, F.when(F.col(VALUE).isNull(), F.col("body"))
    )


def _as_struct(changes: DataFrame, wanted: StructType) -> DataFrame:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    schema = StructType([*wanted.fields, StructField(_CORRUPT, StringType())])
    parsed = F.from_json("body", schema, options)
    return (
        changes.withColumn(VALUE, parsed)
        .withColumn(RESCUED, F.col(VALUE)[_CORRUPT])
        .withColumn(VALUE, F.col(VALUE).dropFields(_CORRUPT))
    )

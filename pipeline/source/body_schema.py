"""Bodies, parsed where they are read: in Spark, in parallel and without Python.

A Python data source hands over columns and cannot have Spark parse one of them. So this is
a function over the changes, not an option of the source.

    with_bodies(changes, "kind STRING, total DOUBLE")    a schema, as DDL
    with_bodies(changes, "variant")                      any JSON

No text stops a query. The column ``rescued`` has, as JSON text, what the schema has no place
for: fields that it does not name, and fields that did not fit, both as they came.
A field is kept or rescued whole: if something inside it does not fit, ``value`` has what
did, and ``rescued`` has all of it. A body that is no JSON object is rescued whole. Fields
that the feed itself adds (``_ts`` and others of Cosmos DB) are not rescued, though a schema
may name them: the source says in the metadata of ``body`` which they are.

What fits is what Spark's ``from_json`` takes: a STRING takes any JSON, as text; an INT does
not take ``"1"`` or ``1.5``; names are case-sensitive. Numbers of more than 38 digits
become floating point numbers in ``rescued``. Bodies are parsed twice for it. The column
``body`` still has every byte.
"""

from typing import Final

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users call it
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from changefeed.pipeline.errors import PipelineRefused
from changefeed.pipeline.source.record_batches import SYSTEM_FIELDS

VARIANT: Final = "variant"
VALUE: Final = "value"
RESCUED: Final = "rescued"

_FIELDS, _LEFT = "__fields", "__left"
_OBJECT: Final = "MAP<STRING, VARIANT>"


def with_bodies(changes: DataFrame, schema: str) -> DataFrame:
    """Add ``value``, the parsed body, and ``rescued``, the text of what did not fit.

    ``schema`` is the DDL of a body, or ``variant``. Raise ``PipelineRefused`` if it is
    neither, or if there is no column ``body``.
    """
    if "body" not in changes.columns:
        raise PipelineRefused("there is no column 'body' to parse: name it in columns")
    if schema.strip().lower() == VARIANT:
        return _as_variant(changes)
    try:
        wanted = StructType.fromDDL(schema)
        if isinstance(wanted, StructType) and wanted.fields:
            return _as_struct(changes, wanted)
        reason = "it names no columns"
    except (AnalysisException, IllegalArgumentException) as error:
        reason = spark_message(error)
    raise PipelineRefused(
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
    """Parse as the schema says, and once more as a map, to see what was left."""
    fields, left = F.col(_FIELDS), F.col(_LEFT)
    rest = F.map_from_arrays(left, F.transform(left, lambda name: fields[name]))
    own = _system_fields(changes) - set(wanted.names)
    given = F.from_json("body", _OBJECT)
    return (
        changes.withColumn(
            _FIELDS, F.map_filter(given, lambda name, _: ~name.isin(*own)) if own else given
        )
        .withColumn(VALUE, F.when(fields.isNotNull(), F.from_json("body", wanted)))
        .withColumn(_LEFT, _left(fields, F.col(VALUE), wanted))
        .withColumn(
            RESCUED,
            F.when(fields.isNull() | _twice(fields), F.col("body")).when(
                F.size(left) > 0, F.to_json(rest)
            ),
        )
        .drop(_FIELDS, _LEFT)
    )


def _system_fields(changes: DataFrame) -> set[str]:
    return set(changes.schema["body"].metadata.get(SYSTEM_FIELDS, ()))


def _twice(fields: Column) -> Column:
    """Return whether a body has two fields of one name, of which ``value`` has the last."""
    names = F.map_keys(fields)
    return F.size(names) > F.size(F.array_distinct(names))


def _left(fields: Column, value: Column, wanted: StructType) -> Column:
    """Return the names of the fields that ``value`` has not, or has not whole."""
    whole = [
        F.when(
            ~_lost(F.try_element_at(fields, F.lit(x.name)), value[x.name], x.dataType), x.name
        )
        for x in wanted.fields
    ]
    return F.array_except(F.map_keys(fields), F.array(*whole))


def _lost(given: Column, value: Column, wanted: DataType) -> Column:
    """Return whether something of a field, as it was given, is not in ``value``.

    A scalar that does not fit is null, and so is an array of scalars. Structs keep what
    fits, so these are looked into, in arrays and maps as well.
    """
    lost = value.isNull()
    if isinstance(wanted, StructType):
        inner = F.try_variant_get(given, "$", _OBJECT)
        lost |= F.size(_left(inner, value, wanted)) > 0
    elif isinstance(wanted, ArrayType) and _is_nested(wanted.elementType):
        elements = F.try_variant_get(given, "$", "ARRAY<VARIANT>")
        lost |= F.exists(
            F.zip_with(elements, value, lambda a, b: _lost(a, b, wanted.elementType)),
            lambda x: x,
        )
    elif isinstance(wanted, MapType) and _is_nested(wanted.valueType):
        entries = F.map_entries(F.try_variant_get(given, "$", _OBJECT))
        lost |= F.exists(
            entries,
            lambda x: _lost(x["value"], F.try_element_at(value, x["key"]), wanted.valueType),
        )
    return given.isNotNull() & ~F.is_variant_null(given) & lost


def _is_nested(wanted: DataType) -> bool:
    return isinstance(wanted, StructType | ArrayType | MapType)

"""A Delta table as such: its columns, what it was made for, and its upkeep.

``deltalake`` creates and inspects the tables; of the rows of a table one engine takes care,
which writes and compacts them: ``deltalake``, or Spark's own Delta (``merge``). The
properties of a table say what it was made for (``changefeed.definition``), where its
columns do not: figures by the hour and by the day look alike.

Upkeep is a commit like any other: small files become large ones, with the same rows, and
readers see the one or the other. A file that is no longer part of the table, or never was,
is removed when it is older than ``keep_files``; this has to be longer than the longest
batch and the longest query over the table. Which batches were added (``txn``) is part of
the log, through its checkpoints, and is not forgotten.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, Schema, WriterProperties
from deltalake.exceptions import TableNotFoundError
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)

_DEFINITION: Final = "changefeed.definition"
_HOUR: Final = 3600
COMPRESSION: Final = "zstd"
_BOUNDED: Final = ("range", "sequence", "key", "id", "committed_at", "window_start")
"""What readers and merges look for; only of these a table keeps the bounds in each file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Upkeep:
    """Every how many batches a table is compacted, and for how many seconds files that are no
    part of it are kept: whole hours, as Delta counts.
    """

    every: int
    keep_files: float

    def maintain(self, uri: str, batch: int, compact: Callable[[str, float], None]) -> None:
        """Compact the table, if it is due after this batch, by the engine that writes it. A
        failure does not fail the batch: the next compaction includes what this one could not.
        """
        if batch % self.every != self.every - 1:
            return
        try:
            compact(uri, self.keep_files)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # noqa: BLE001 - deltalake's panics are no Exception
            _log.warning("table.not_compacted", table=uri, reason=str(error))


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the columns of a Spark table as both Spark and Delta write them.

    Raise ``UserError`` for a type that a table cannot have.
    """
    for x in schema.fields:
        if _has_variant(x.dataType):
            raise UserError(
                f"the column {x.name!r} is a VARIANT, or has one in it, which a table cannot "
                f"keep: STRING takes any JSON, as text"
            )
    try:
        found: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        found = pa.schema([x.with_nullable(True) for x in found])
        Schema.from_arrow(found)
    except Exception as error:  # what deltalake refuses has no class of its own
        reason = str(error).splitlines()[0]
        raise UserError(f"no table can have these columns: {reason}") from error
    return found


def refuse_another(uri: str, schema: pa.Schema, definition: str = "") -> None:
    """Raise ``UserError`` if there is a table, with other columns or made otherwise."""
    try:
        table = DeltaTable(uri)
    except TableNotFoundError:
        return
    there, wanted = table.schema(), Schema.from_arrow(schema)
    if there != wanted:
        raise settings_changed(
            uri, f"has the columns {_columns(there)}; {_columns(wanted)} are to be written"
        )
    made_for = table.metadata().configuration.get(_DEFINITION, "")
    if made_for != definition:
        raise UserError(
            f"the table {uri} was made for {made_for}; the settings say {definition}: its rows "
            f"would not mean the same. Rename it, name a new directory, or set them back"
        )


def ensure_table(uri: str, schema: pa.Schema, definition: str = "") -> DeltaTable:
    """Return the table; create it empty if it is missing. Raise as ``refuse_another``."""
    refuse_another(uri, schema, definition)
    # Of values that come from bodies deltalake cannot compute all bounds: at a date after the
    # year 9999 it stops.
    bounded = ",".join(x for x in schema.names if x in _BOUNDED)
    configuration: dict[str, str | None] = (
        {"delta.dataSkippingStatsColumns": bounded}
        if bounded
        else {"delta.dataSkippingNumIndexedCols": "0"}
    )
    if definition:
        configuration[_DEFINITION] = definition
    return DeltaTable.create(
        uri, schema, mode="ignore", configuration=configuration, raise_if_key_not_exists=False
    )


def settings_changed(uri: str, what: str) -> UserError:
    """Return the refusal to write something else to a table than what it has."""
    return UserError(
        f"the table {uri} {what}: its settings have changed. Name a new directory, or set "
        f"them back"
    )


def compact(uri: str, keep_files: float) -> None:
    """Put small files together, and remove old files that are not part of the table.

    Raise what ``deltalake`` raises, as when somebody else has changed the same files. But
    two compactions at once go unnoticed there, and each row is in the table twice then: who
    keeps a table is the only one to compact it.
    """
    table = DeltaTable(uri)
    table.optimize.compact(writer_properties=WriterProperties(compression="ZSTD"))
    hours = whole_hours(keep_files)
    table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)


def whole_hours(seconds: float) -> int:
    return ceil(seconds / _HOUR)


def _columns(schema: Schema) -> str:
    return ", ".join(f"{x.name} {_type(x.type)}" for x in schema.fields)


def _type(found: object) -> str:
    name = getattr(found, "type", None)
    return name if isinstance(name, str) and not hasattr(found, "fields") else str(found)


def _has_variant(found: DataType) -> bool:
    if isinstance(found, StructType):
        return any(_has_variant(x.dataType) for x in found.fields)
    if isinstance(found, ArrayType):
        return _has_variant(found.elementType)
    if isinstance(found, MapType):
        return _has_variant(found.valueType)
    return isinstance(found, VariantType)

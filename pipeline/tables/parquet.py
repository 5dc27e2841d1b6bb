"""The table of changes as plain Parquet files, which Spark writes and reads by itself.

``_spark_metadata`` beside them lists the files that count. It knows neither columns nor
upkeep, so what is checked for a Delta table is checked here, for tables on this machine.
"""

from pathlib import Path

from pyspark.sql import DataFrame

from changefeed.pipeline.tables.delta_table import settings_changed


def refuse_plain_files(uri: str) -> None:
    """Raise ``PipelineRefused`` where Delta would be written among plain files."""
    if _holds(uri, "_spark_metadata"):
        raise settings_changed(
            uri, "is a table of plain Parquet files, and delta is to be written"
        )


def refuse_other_files(uri: str, rows: DataFrame) -> None:
    """Raise ``PipelineRefused`` where there is another table than one of these rows."""
    if _holds(uri, "_delta_log"):
        raise settings_changed(uri, "is a Delta table, and plain Parquet is to be written")
    if not _holds(uri, "_spark_metadata") or not any(Path(uri).glob("*.parquet")):
        return
    there = dict(rows.sparkSession.read.parquet(uri).dtypes)
    wanted = dict(rows.dtypes)
    if there != wanted:
        raise settings_changed(
            uri,
            f"has the columns {_column_list(there)}; {_column_list(wanted)} are to be written",
        )


def _holds(uri: str, folder: str) -> bool:
    return "://" not in uri and (Path(uri) / folder).is_dir()


def _column_list(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())

"""Reads items by query as Spark does, without Spark."""

import pickle
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from changefeed.pipeline.items.spark import FilteringItemReader, ItemReader, ItemSource

Row = Mapping[str, Any]


def item_reader(
    options: Mapping[str, str], schema: StructType | None = None, filters: Sequence[Filter] = ()
) -> ItemReader:
    source = ItemSource({**options})
    reader = source.reader(schema or source.schema())
    assert isinstance(reader, ItemReader)
    if isinstance(reader, FilteringItemReader):
        assert list(reader.pushFilters([*filters])) == [*filters]
    return reader


def found(
    options: Mapping[str, str], schema: StructType | None = None, filters: Sequence[Filter] = ()
) -> list[Row]:
    """Read all tasks, each with a copy of the reader."""
    reader = item_reader(options, schema, filters)
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    copy = pickle.loads(pickle.dumps(reader))
    return [y for x in tasks for batch in copy.read(x) for y in batch.to_pylist()]

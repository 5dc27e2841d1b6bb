"""The classes that Spark calls for the format ``changefeed_items``.

A batch reads the items as they are while it reads: Cosmos DB has no snapshot over ranges. A
task that is tried again asks its ranges again from the beginning, and Spark drops what the
first try gave.
"""

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.cosmos.items import Query
from changefeed.pipeline.items.columns import ItemColumns, of_format
from changefeed.pipeline.items.item_reader import ItemAccess
from changefeed.pipeline.items.options import NAME, ItemOptions
from changefeed.pipeline.items.questions import ItemQuestion, planned, results
from changefeed.pipeline.source.addresses import most_tasks, of_a_task
from changefeed.pipeline.source.kept_access import kept_open
from changefeed.runtime.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # from Spark 4.1 on


class ItemSource(DataSource):
    """The format ``changefeed_items``. See ``options`` for what can be said."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return of_format(ItemOptions.of(self.options).default)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = ItemOptions.of(self.options)
        kind = FilteringItemReader if options.push_filters else ItemReader
        return kind(options, options.columns_of(schema))

    def streamReader(self, schema: StructType) -> NoReturn:  # noqa: N802, ARG002 - Spark's name
        raise UserError(
            f"{NAME} reads batches: a query finds what is there, and not what changes. Stream "
            f"changes with the format changefeed"
        )


class QuestionPartition(InputPartition):
    """What one task asks, of so many ``tasks`` that share a budget."""

    def __init__(self, asked: tuple[ItemQuestion, ...], tasks: int = 1) -> None:
        super().__init__(asked)
        self.tasks = tasks

    @property
    def identity(self) -> str:
        identity: str = self.value[0].question.identity
        return identity


class ItemReader(DataSourceReader):
    """Reads the items that there are."""

    def __init__(self, options: ItemOptions, columns: ItemColumns) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        options = self._options
        with opened(options.feed, options.cosmos) as access:
            found = planned(access, options, self._columns, self._where())
        most = most_tasks(options.feed) or len(found)
        tasks = [sum(found[n::most], ()) for n in range(min(most, len(found)))]
        # For an empty list Spark would make a partition of its own.
        return [QuestionPartition(x, len(tasks)) for x in tasks] or [QuestionPartition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QuestionPartition), "Spark hands out what it was given"
        if not partition.value:
            return
        address = of_a_task(self._options.feed, partition.tasks)
        with opened(address, self._options.cosmos, partition.identity) as access:
            for asked in partition.value:
                for items in results(access, asked):
                    yield self._columns.batch(items, access.paths)

    def _where(self) -> Query:
        """Return the condition of what is asked for, with its parameters; none, if empty."""
        return Query(text="")


def opened(
    address: str, cosmos: CosmosAccess | None, identity: str = ""
) -> AbstractContextManager[ItemAccess]:
    """Lend the items at an address, as ``kept_open`` does."""
    opening = partial(ItemAccess, address, cosmos)
    return kept_open(("items", address), opening, cosmos, feed=identity)


class FilteringItemReader(ItemReader):
    """Asks for what Spark's filters may leave. Spark refuses one where it pushes none."""

    def __init__(self, options: ItemOptions, columns: ItemColumns) -> None:
        from changefeed.pipeline.items.conditions import (  # noqa: PLC0415 - Spark 4.1
            Conditions,
        )

        super().__init__(options, columns)
        self._conditions = Conditions(columns)

    def pushFilters(self, filters: "list[Filter]") -> "Iterable[Filter]":  # noqa: N802 - Spark's
        return self._conditions.push(filters)

    def _where(self) -> Query:
        return self._conditions.query

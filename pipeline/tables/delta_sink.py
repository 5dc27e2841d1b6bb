"""The Spark sink ``changefeed_delta``: appends to a Delta table, each batch exactly once.

Tasks write Parquet files beside the table, which no reader sees. The driver then makes one
commit that adds all of them and says, in Delta's own words (``txn``), which batch of which
query this was. A batch that Spark repeats after a crash is found there and not added again;
its files are left behind, as are those of a batch that failed, until the table is compacted
(``delta_table``), which happens between two batches.

The name of the query is the id that Spark keeps in the checkpoint directory, so a query
that starts with a new checkpoint appends everything again, as its reader would expect. The
table has to be there: ``ensure_table`` makes it.

Limits: the checkpoint must be on a file system of this machine, or the option ``appId``
must name the query. Files are written through pyarrow and committed by deltalake with what
both find in the environment; there is no option for credentials.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction
from pyarrow.fs import FileSystem
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from changefeed.pipeline.source.kept_access import freeze_gc
from changefeed.pipeline.tables.delta_table import COMPRESSION, Upkeep, arrow_schema, compact
from changefeed.runtime.errors import UserError
from changefeed.runtime.quantities import seconds

NAME: Final = "changefeed_delta"


def register_sink(spark: SparkSession) -> None:
    spark.dataSource.register(DeltaSink)


class DeltaSink(DataSource):
    """The format ``changefeed_delta``. Options: ``path``, and ``appId`` if need be.

    With ``compactEvery`` and ``keepFiles``, every so many batches its files are looked after.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(  # noqa: N802 - Spark's name
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001 - Spark calls it so
    ) -> DataSourceStreamWriter:
        if overwrite:
            raise UserError("a table of changes is only appended to: outputMode append")
        given = {name.lower(): value for name, value in self.options.items()}
        if "path" not in given:
            raise UserError("say which table: .option('path', 'DIRECTORY')")
        return DeltaAppender(
            given["path"],
            arrow_schema(schema),
            checkpoint=given.get("checkpointlocation"),
            app_id=given.get("appid"),
            upkeep=_upkeep(given),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A Parquet file that a task wrote, by its name in the table."""

    name: str
    size: int
    rows: int


@dataclass
class Written(WriterCommitMessage):
    """What a task reports to the driver."""

    files: tuple[File, ...]


class DeltaAppender(DataSourceStreamArrowWriter):
    """Writes in the tasks, commits in the driver. Pickled to get from one to the other."""

    def __init__(
        self,
        uri: str,
        schema: pa.Schema,
        *,
        checkpoint: str | None,
        app_id: str | None,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._uri = uri
        self._schema = schema
        self._checkpoint = checkpoint
        self._app_id = app_id
        self._upkeep = upkeep

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        freeze_gc()
        first = next(iterator, None)
        if first is None:
            return Written(files=())
        files, root = file_system(self._uri)
        name, rows = f"part-{uuid4()}.parquet", 0
        place = f"{root}/{name}"
        with pq.ParquetWriter(
            place, self._schema, filesystem=files, compression=COMPRESSION
        ) as writer:
            for batch in chain([first], iterator):
                writer.write_table(pa.Table.from_batches([batch]).cast(self._schema))
                rows += batch.num_rows
        size = files.get_file_info(place).size
        return Written(files=(File(name=name, size=size, rows=rows),))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        files = [x for done in messages if isinstance(done, Written) for x in done.files]
        append_once(self._uri, files, app_id=self._query(), batch=batchId)
        if self._upkeep is not None:
            self._upkeep.maintain(self._uri, batchId, compact)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Leave the files there: the batch may be in the table.

        Spark aborts whenever a commit has raised, also after it was made. Files that are
        part of no commit are removed with those of tasks that were killed.
        """

    def _query(self) -> str:
        if self._app_id is not None:
            return self._app_id
        assert self._checkpoint is not None, "Spark starts no stream without a checkpoint"
        return query_id(self._checkpoint)


def query_id(checkpoint: str) -> str:
    """Return the id that Spark keeps for as long as the checkpoint of a query lasts."""
    metadata = Path(checkpoint.removeprefix("file://")) / "metadata"
    try:
        found: str = json.loads(metadata.read_text("utf-8"))["id"]
    except OSError as error:
        raise UserError(
            f"{metadata} cannot be read ({error.strerror}): for a checkpoint that is not "
            f"on this machine, name the query with .option('appId', ...)"
        ) from error
    return found


def is_added(table: DeltaTable, *, app_id: str, batch: int) -> bool:
    """Whether a batch of a query was added before."""
    before = table.transaction_version(app_id)
    return before is not None and before >= batch


def append_once(uri: str, files: Sequence[File], *, app_id: str, batch: int) -> None:
    """Add files to a table in one commit, unless this batch was added before."""
    table = DeltaTable(uri)
    if not files or is_added(table, app_id=app_id, batch=batch):
        return
    now = time.time_ns() // 1_000_000
    table.create_write_transaction(
        actions=[
            AddAction(
                path=x.name,
                size=x.size,
                partition_values={},
                modification_time=now,
                data_change=True,
                stats=json.dumps({"numRecords": x.rows}),
            )
            for x in files
        ],
        mode="append",
        schema=table.schema(),
        commit_properties=CommitProperties(
            app_transactions=[Transaction(app_id=app_id, version=batch)]
        ),
    )


def _upkeep(given: Mapping[str, str]) -> Upkeep | None:
    if "compactevery" not in given:
        return None
    return Upkeep(every=int(given["compactevery"]), keep_files=seconds(given["keepfiles"]))


def file_system(uri: str) -> tuple[FileSystem, str]:
    """Return where a table is, and its path there."""
    files, root = FileSystem.from_uri(uri)
    return files, root.rstrip("/")

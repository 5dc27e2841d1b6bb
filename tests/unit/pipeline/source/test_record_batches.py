"""The columns and options of the source; they need pyarrow, and no Spark."""

from dataclasses import replace
from datetime import UTC, datetime

import msgspec
import pytest

from changefeed.feeds.feed import Change, Operation, RangeId
from changefeed.feeds.raw_pages import Rows
from changefeed.log.format.block_format import Columns, lay_out
from changefeed.log.records import Record, encode_record
from changefeed.pipeline.source.options import Options
from changefeed.pipeline.source.record_batches import EVERYTHING, Envelope
from changefeed.runtime.errors import UserError
from tests.support import make

R0 = RangeId("r0")


def columns_of(first: int, *changes: Change) -> Columns:
    """Return the same changes as the event log has them."""
    records = [
        Record(
            key=x.key,
            id=x.id,
            operation=x.operation,
            body=x.body,
            committed_us=x.committed_us,
            previous=x.previous,
        )
        for x in changes
    ]
    layout = lay_out([encode_record(x, 0) for x in records])
    return Columns(first=first, count=len(changes), skip=0, layout=layout)


def test_a_change_and_a_column_of_the_log_make_the_same_row() -> None:
    envelope = Envelope(columns=EVERYTHING)
    change = make.change(
        7,
        range_id=R0,
        item="i",
        operation=Operation.REPLACE,
        body='{"é":1}'.encode(),
        committed_us=1_500_000,
        previous=b"{}",
    )
    row = {
        "range": "r0",
        "sequence": 7,
        "key": "k",
        "id": "i",
        "operation": "replace",
        "body": '{"é":1}',
        "previous": "{}",
        "committed_at": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
        "generation": 2,
    }
    for slice_ in ([change], Rows.of([change]), columns_of(7, change)):
        batch = envelope.batch(R0, slice_, 2)
        assert batch.schema == envelope.schema
        assert batch.to_pylist() == [row]


def test_no_body_is_null_and_only_the_columns_named_are_made() -> None:
    deleted = make.change(range_id=R0, operation=Operation.DELETE, body=b"")
    envelope = Envelope.of("body, key")
    assert envelope.spark_schema().simpleString() == "struct<body:string,key:string>"
    assert envelope.batch(R0, [deleted], 0).to_pylist() == [{"body": None, "key": "k"}]


def test_bytes_that_are_no_text_are_escaped_in_bodies_and_images() -> None:
    given = [b'{"a": "\xff"}', "\u00e9".encode(), b""]
    changes = [
        make.change(n, range_id=R0, body=x, previous=x or None) for n, x in enumerate(given)
    ]
    for slice_ in (changes, columns_of(0, *changes)):
        batch = Envelope.of("body, previous").batch(R0, slice_, 0)
        expected = [r'{"a": "\xff"}', "\u00e9", None]
        assert batch["body"].to_pylist() == batch["previous"].to_pylist() == expected


@pytest.mark.parametrize("bodies", [["{}", "[1]"], ["{}", "", "\u00e9"], [], ["", ""]])
def test_bodies_that_come_side_by_side_are_cut_where_they_end(bodies: list[str]) -> None:
    raws = [msgspec.Raw(x.encode()) for x in bodies]
    rows = replace(Rows.of([]), sequences=range(len(raws)), bodies=raws)
    made = Envelope.of("body").batch(R0, rows, 0)["body"]
    made.validate(full=True)
    assert made.to_pylist() == [x or None for x in bodies]


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "feed"),
        ({"maxChanges": "5"}, "'maxchanges'. Known options: feed"),
        ({"bodySchema": "n INT"}, "with_bodies"),
        ({"startingAt": "yesterday"}, "yesterday"),
        ({"startingAt": "2026-01-31"}, "no zone"),
        ({"columns": "key,value"}, "'value'. Known columns: range"),
        ({"columns": "key,key"}, "once"),
        ({"maxChangesPerBatch": "0"}, "from 1 on"),
        ({"pollInterval": "soon"}, "seconds"),
        ({"initialSnapshot": "yes"}, "true or false"),
        ({"initialSnapshot": "true", "startingAt": "now"}, "say one of them"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        Options.of({"feed": "eventlog:/log", **given} if given else {})

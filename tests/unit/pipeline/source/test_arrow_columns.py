"""Blocks of the event log as Arrow arrays: the same rows, and no trust in their bytes."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.feed import RangeId
from changefeed.log.format.arrow_columns import layout_of
from changefeed.log.format.block_format import (
    BlockChanges,
    Columns,
    Layout,
    joined,
    lay_out,
)
from changefeed.log.records import OPERATIONS, Record, encode_record
from changefeed.pipeline.source.record_batches import EVERYTHING, Envelope

R0 = RangeId("r0")
ENVELOPE = Envelope(columns=EVERYTHING)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=3)
RECORDS = st.builds(
    Record,
    key=TEXTS,
    id=st.none() | TEXTS,
    operation=st.sampled_from(OPERATIONS),
    body=TEXTS.map(str.encode),
    previous=st.none() | TEXTS.map(str.encode),
    committed_us=st.integers(-(2**40), 2**50),
)


def laid_out(*records: Record) -> Layout:
    return lay_out([encode_record(x, 0) for x in records])


@given(
    blocks=st.lists(st.lists(RECORDS, min_size=1, max_size=6), min_size=1, max_size=3),
    data=st.data(),
)
def test_any_piece_of_any_blocks_makes_the_rows_that_its_changes_make(
    blocks: list[list[Record]], data: st.DataObject
) -> None:
    layout = joined(laid_out(*x) for x in blocks)
    changes = BlockChanges(R0, 11, len(layout.kinds), layout).take(len(layout.kinds))
    skip = data.draw(st.integers(0, len(changes) - 1))
    count = data.draw(st.integers(1, len(changes) - skip))
    slice_ = Columns(first=11 + skip, count=count, skip=skip, layout=layout)
    batch = ENVELOPE.batch(R0, slice_, 2)
    batch.validate(full=True)
    assert batch == ENVELOPE.batch(R0, changes[skip : skip + count], 2)


PLAIN = laid_out(
    Record(key="k", body=b"{}", committed_us=1),
    Record(key="k", id="i", body=b"[]", previous=b"{}", committed_us=1),
)


@pytest.mark.parametrize(
    "damage",
    [
        {"kinds": b"\0\x0f"},
        {"kinds": b"\4\x0c"},
        {"kinds": b"\0\x0c\0"},
        {"times": b"\0" * 15},
        {"key_sizes": b"\1\0\0\0"},
        {"keys": b"k"},
        {"keys": b"k\xff"},
        {"ids": b""},
        {"body_sizes": b"\xff\xff\xff\xff\5\0\0\0"},  # adds up to 4, had it no bounds
        {"body_sizes": b"\1\0\0\0\4\0\0\0"},
        {"previous": b"{}}"},
    ],
)
def test_bytes_that_do_not_fit_are_refused_before_arrow_reads_them(
    damage: dict[str, bytes],
) -> None:
    layout = PLAIN._replace(**damage)
    with pytest.raises(FeedRefused, match=r"the \d from sequence 7 on: .*is damaged"):
        ENVELOPE.batch(R0, Columns(first=7, count=2, skip=0, layout=layout), 0)


@pytest.mark.parametrize("missing", ["key", "id", "operation"])
def test_a_change_without_what_each_has_is_no_column_of_a_log(missing: str) -> None:
    batch = ENVELOPE.batch(R0, Columns(first=7, count=2, skip=0, layout=PLAIN), 0)
    place = batch.schema.get_field_index(missing)
    nulls = pa.nulls(2, batch.schema.field(missing).type)
    with pytest.raises(pa.ArrowInvalid, match=missing):
        layout_of(batch.set_column(place, missing, nulls))

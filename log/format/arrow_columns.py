"""Arrow arrays over the columns of an event log, whose bytes are Arrow's buffers already.

No row is looked at in Python, and bytes are not copied: sizes become offsets by one sum,
and a text is checked to be UTF-8. What is damaged is noticed before Arrow could read where
there is nothing. Numbers are taken to be little-endian, as the log has them.

Constants are made of bytes, too: for the first Python value or list that Arrow is given, it
imports pandas, which takes longer than a small task of Spark.

The way back, from Arrow to the columns of a log, is exact too: it gives the same bytes.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from changefeed.log.format.block_format import Columns, Layout
from changefeed.log.records import HAS_ID, HAS_PREVIOUS, OPERATIONS

TIME: Final = pa.timestamp("us", tz="UTC")

_ZERO: Final = bytes(4)

Arrays = Mapping[str, Callable[[], pa.Array]]
"""By the name of the column, what makes it."""

Bodies = Literal["escaped", "text", "bytes"]
r"""What becomes of bodies and images before, which may be any bytes: text with ``\xff`` for a
byte that is no UTF-8, text that has to be UTF-8, or bytes."""


def arrays(columns: Columns, bodies: Bodies = "escaped") -> Arrays:
    """Return how to make each column of all records there are, wanted or not.

    To make one raises ``pa.ArrowInvalid`` or ``IndexError`` where the bytes do not fit.
    """
    layout = columns.layout
    size = len(layout.kinds)
    first = columns.first - columns.skip
    return {
        "sequence": lambda: pa.arange(first, first + size),
        "key": lambda: _texts(layout.key_sizes, layout.keys, size),
        "id": lambda: _ids(layout, size),
        "operation": lambda: _OPERATIONS.take(pc.bit_wise_and(_kinds(layout), _bits(3))),
        "body": lambda: _texts(
            layout.body_sizes, layout.bodies, size, empty_is_null=True, users=bodies
        ),
        "previous": lambda: _previous(layout, size, bodies),
        "committed_at": lambda: _fixed(TIME, layout.times, 8, size),
    }


def _ids(layout: Layout, size: int) -> pa.Array:
    keys = _texts(layout.key_sizes, layout.keys, size)
    return _given(layout, HAS_ID, layout.id_sizes, layout.ids, keys)


def _previous(layout: Layout, size: int, bodies: Bodies) -> pa.Array:
    none = pa.nulls(size, pa.binary() if bodies == "bytes" else pa.string())
    sizes, data = layout.previous_sizes, layout.previous
    return _given(layout, HAS_PREVIOUS, sizes, data, none, users=bodies)


def _given(
    layout: Layout,
    bit: int,
    sizes: bytes,
    data: bytes,
    otherwise: pa.Array,
    *,
    users: Bodies = "text",
) -> pa.Array:
    """Return the texts of those records whose kind has the bit, and others else."""
    if not sizes:
        return otherwise
    texts = _texts(sizes, data, len(sizes) // 4, users=users)
    has = pc.not_equal(pc.bit_wise_and(_kinds(layout), _bits(bit)), _bits(0))
    return pc.replace_with_mask(otherwise, has, texts)


def _kinds(layout: Layout) -> pa.Array:
    return _fixed(pa.uint8(), layout.kinds, 1, len(layout.kinds))


def _fixed(kind: pa.DataType, data: bytes, width: int, size: int) -> pa.Array:
    if len(data) != width * size:
        raise pa.ArrowInvalid(f"{len(data)} bytes, {width * size} were to be there")
    return pa.Array.from_buffers(kind, size, [None, pa.py_buffer(data)])


def _texts(
    sizes: bytes, data: bytes, size: int, *, empty_is_null: bool = False, users: Bodies = "text"
) -> pa.Array:
    """Cut texts. Those that are the user's may be anything, ours are damaged if no UTF-8."""
    lengths = _fixed(pa.uint32(), _ZERO + sizes, 4, size + 1)
    offsets = pc.cumulative_sum_checked(lengths)
    if offsets[size].as_py() != len(data):
        raise pa.ArrowInvalid(f"{len(data)} bytes, {offsets[size]} were to be there")
    there = None
    if empty_is_null:
        lengths = _fixed(pa.uint32(), sizes, 4, size)
        there = pc.not_equal(lengths, scalar(pa.uint32(), _ZERO)).buffers()[1]
    texts = pa.Array.from_buffers(
        pa.string(), size, [there, offsets.buffers()[1], pa.py_buffer(data)]
    )
    if users == "bytes":
        return texts.view(pa.binary())
    if data.isascii():
        return texts
    if users == "escaped":
        return _readable(texts)
    texts.validate(full=True)
    return texts


def _readable(texts: pa.Array) -> pa.Array:
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return _escaped(texts.view(pa.binary()).to_pylist())
    return texts


def readable(values: Sequence[bytes | None]) -> pa.Array:
    r"""Make a column of text, with ``\xff`` in the place of a byte that is no UTF-8."""
    try:
        return pa.array(values, pa.string())
    except pa.ArrowInvalid:
        return _escaped(values)


def joined(bodies: Sequence[bytes | msgspec.Raw]) -> pa.Array:
    """Make the same column of bodies that are there, whatever holds them, by one copy."""
    if not all(map(len, bodies)):
        return readable([bytes(x) or None for x in bodies])
    data = b"".join(bodies)
    offsets = array("i", accumulate(map(len, bodies), initial=0))
    texts = pa.Array.from_buffers(
        pa.string(), len(bodies), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    return texts if data.isascii() else _readable(texts)


def scalar(kind: pa.DataType, data: bytes) -> pa.Scalar:
    """Make a number of its bytes."""
    return _fixed(kind, data, len(data), 1)[0]


def _bits(byte: int) -> pa.Scalar:
    return scalar(pa.uint8(), bytes([byte]))


_OPERATIONS: Final = joined([str(x).encode() for x in OPERATIONS])


def _escaped(values: Sequence[bytes | None]) -> pa.Array:
    return pa.array(
        [None if x is None else x.decode("utf-8", "backslashreplace") for x in values],
        pa.string(),
    )


def layout_of(batch: pa.RecordBatch) -> Layout:
    """Return the columns of a log that have become this batch, of all but ``sequence``.

    Raise ``pa.ArrowInvalid`` for one that no log can have become.
    """
    size = batch.num_rows
    key, id_, previous = (batch.column(x) for x in ("key", "id", "previous"))
    operation = pc.index_in(batch.column("operation"), value_set=_OPERATIONS)
    if operation.null_count or key.null_count or id_.null_count:
        raise pa.ArrowInvalid("a change has no key, no id, or an operation there is not")
    has_id, has_previous = pc.not_equal(id_, key), pc.is_valid(previous)
    kinds = operation.cast(pa.uint8())
    for bit, has in ((HAS_ID, has_id), (HAS_PREVIOUS, has_previous)):
        marks = pc.multiply(has.cast(pa.uint8()), _bits(bit))
        kinds = pc.bit_wise_or(kinds, marks)
    return Layout(
        _bytes_of(kinds, 1, size),
        _bytes_of(batch.column("committed_at"), 8, size),
        *_laid(key),
        *_laid(id_.filter(has_id)),
        *_laid(batch.column("body")),
        *_laid(previous.filter(has_previous)),
    )


def _bytes_of(column: pa.Array, width: int, size: int) -> bytes:
    begin = column.offset * width
    found = bytes(memoryview(column.buffers()[1])[begin : begin + size * width])
    assert len(found) == size * width, f"{size} values of {width} bytes are {len(found)}"
    return found


def _laid(column: pa.Array) -> tuple[bytes, bytes]:
    size = len(column)
    if not size:
        return b"", b""
    _, offsets, data = column.buffers()
    ends = memoryview(offsets).cast("i")
    begin, end = ends[column.offset], ends[column.offset + size]
    sizes = pc.fill_null(pc.binary_length(column), 0)
    texts = b"" if data is None else bytes(memoryview(data)[begin:end])
    assert len(texts) == end - begin, f"{end - begin} bytes of texts are {len(texts)}"
    return _bytes_of(sizes, 4, size), texts

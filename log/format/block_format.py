"""How records lie together: by columns, each of which is bytes. Frozen: the file format.

    kinds                     a byte each: 0 insert, 1 replace, 2 delete; 4 is added where the
                              id is not the key, 8 where an image before is kept
    times                     commit times, microseconds, 8 bytes each, with a sign
    key_sizes, keys           sizes in bytes, 4 bytes each, and the texts without a gap
    id_sizes, ids             the same, of those records only whose kind has the 4
    body_sizes, bodies        the same, of all records; no body has no bytes
    previous_sizes, previous  the same, of those records only whose kind has the 8

Numbers are little-endian, texts are UTF-8. A column has no header, so records that follow
each other become one by joining their columns.
These are the buffers of Arrow, but for sizes in the place of offsets, which could not be
joined: engines that work on columns take them as they are. A host cuts its changes from the
same bytes, with the loops in C: reading is the hot path of the whole project.
"""

import struct
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO, StringIO
from itertools import islice, repeat, starmap, tee
from typing import Final, NamedTuple

from changefeed.feeds.feed import Change, LateChanges, RangeId
from changefeed.log.errors import Damaged
from changefeed.log.records import HAS_ID, HAS_PREVIOUS, OPERATIONS, Encoded


class Layout(NamedTuple):
    """The columns of some records that follow each other."""

    kinds: bytes
    times: bytes
    key_sizes: bytes
    keys: bytes
    id_sizes: bytes
    ids: bytes
    body_sizes: bytes
    bodies: bytes
    previous_sizes: bytes
    previous: bytes


def check_of(columns: Iterable[bytes]) -> int:
    """Return the CRC-32 of columns that lie one behind the other."""
    return zlib.crc32(b"".join(columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Records that follow each other in one range, for who works on columns.

    ``first`` is the sequence of the first record wanted and ``count`` how many there are;
    ``skip`` records lie before it in ``layout``, and others may lie behind. Whether the
    columns fit together is not known yet: who makes something of them has to see.
    """

    first: int
    count: int
    skip: int
    layout: Layout

    def __len__(self) -> int:
        return self.count


_OPERATIONS: Final = {
    code | more: operation
    for code, operation in enumerate(OPERATIONS)
    for more in (0, HAS_ID, HAS_PREVIOUS, HAS_ID | HAS_PREVIOUS)
}


def lay_out(records: Sequence[Encoded]) -> Layout:
    times, kinds, keys, ids, bodies, previous, _ = zip(*records, strict=True)
    layout = Layout(
        bytes(kinds),
        struct.pack(f"<{len(times)}q", *times),
        *_laid(keys),
        *_laid(_given(ids)),
        *_laid(bodies),
        *_laid(_given(previous)),
    )
    assert len(layout.key_sizes) == len(layout.body_sizes) == 4 * len(records), (
        f"keys and bodies of {len(records)} records: {layout}"
    )
    return layout


def joined(blocks: Iterable[Sequence[bytes]]) -> Layout:
    """Make one of blocks that follow each other."""
    return Layout(*map(b"".join, zip(*blocks, strict=True)))


class BlockChanges:
    """The changes of a block that are still bytes, to be cut from it in order.

    ``first`` is the sequence of the first of those ``left``, and ``size`` about their bytes.
    """

    def __init__(self, range_id: RangeId, first: int, count: int, block: Layout) -> None:
        """Take a block that is to have ``count`` records. Raise ``Damaged`` if not."""
        check_counts(count, block)
        self.first, self.left = first, count
        self.size = len(block.bodies) + len(block.keys)
        try:
            self._changes = _changes(range_id, first, count, block)
        except ValueError as error:
            raise Damaged(str(error)) from error
        self._taken, self._cut = 0, 0
        self._late = deque[LateChanges]()
        """What is taken and not cut, the first of which is the next."""

    def take(self, most: int) -> Sequence[Change]:
        """Take the next changes. They are cut when one of them is looked at, or a later one."""
        count = min(most, self.left)
        self.size -= self.size * count // max(1, self.left)
        self.first, self.left = self.first + count, self.left - count
        self._late.append(LateChanges(count, partial(self._cut_in_order, self._taken, count)))
        self._taken += 1
        return self._late[-1]

    def _cut_in_order(self, number: int, count: int) -> Iterator[Change]:
        while self._cut < number:
            _ = self._late[0].made
        self._late.popleft()
        self._cut += 1
        return islice(self._changes, count)


def check_counts(count: int, block: Layout) -> None:
    """Raise ``Damaged`` where a column has another number of records than is said."""
    known = {x: block.kinds.count(x) for x in _OPERATIONS}
    found = {
        "kinds": (len(block.kinds), count),
        "known kinds": (sum(known.values()), count),
        "times": (len(block.times), 8 * count),
        "keys": (len(block.key_sizes), 4 * count),
        "bodies": (len(block.body_sizes), 4 * count),
        "ids": (len(block.id_sizes), 4 * sum(n for x, n in known.items() if x & HAS_ID)),
        "images": (
            len(block.previous_sizes),
            4 * sum(n for x, n in known.items() if x & HAS_PREVIOUS),
        ),
    }
    if odd := {name: x for name, x in found.items() if x[0] != x[1]}:
        raise Damaged(f"of {count} records there are columns of other sizes: {odd}")


def _changes(range_id: RangeId, first: int, count: int, block: Layout) -> Iterator[Change]:
    """Make changes one after the other; all that can be wrong with them is found at once."""
    keys, ids = tee(_cut_text(block.key_sizes, block.keys))
    if block.id_sizes:
        given = _cut_text(block.id_sizes, block.ids)
        kinds = zip(block.kinds, ids, strict=True)
        ids = (next(given) if x & HAS_ID else key for x, key in kinds)
    previous: Iterable[bytes | None] = repeat(None, count)
    if block.previous_sizes:
        images = _cut(block.previous_sizes, block.previous)
        previous = (next(images) if x & HAS_PREVIOUS else None for x in block.kinds)
    fields = zip(
        repeat(range_id, count),
        range(first, first + count),
        keys,
        ids,
        map(_OPERATIONS.__getitem__, block.kinds),
        _cut(block.body_sizes, block.bodies),
        _times(block.times),
        previous,
        strict=True,
    )
    return starmap(Change, fields)


def _given(values: Sequence[bytes | None]) -> Sequence[bytes]:
    return [x for x in values if x is not None]


def _laid(values: Sequence[bytes]) -> tuple[bytes, bytes]:
    if not values:
        return b"", b""
    return struct.pack(f"<{len(values)}I", *map(len, values)), b"".join(values)


def _times(times: bytes) -> Sequence[int]:
    return struct.unpack(f"<{len(times) // 8}q", times)


def _cut_text(sizes: bytes, data: bytes) -> Iterator[str]:
    if not data.isascii():
        return iter([x.decode() for x in _cut(sizes, data)])
    return map(StringIO(data.decode()).read, _sizes(sizes, len(data)))  # a quarter quicker


def _cut(sizes: bytes, data: bytes) -> Iterator[bytes]:
    return map(BytesIO(data).read, _sizes(sizes, len(data)))


def _sizes(sizes: bytes, whole: int) -> Sequence[int]:
    """Read the sizes of slices, with nothing left over or lacking of the whole."""
    wanted = struct.unpack(f"<{len(sizes) // 4}I", sizes)
    if sum(wanted) != whole:
        raise ValueError(f"{sum(wanted)} bytes are said to be there, {whole} are")
    return wanted

"""What clients are shown of a catalog, in JSON, made in pieces.

After many eras a collection may have some hundred thousand partitions. A broker that laid them
out at one go would answer no other request for seconds, so after each piece it gives way to
its other tasks. Most partitions were closed long ago, and a newer catalog says the same of
them: what was made of those is kept.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from changefeed.feeds.brokers.catalog import Partition
from changefeed.feeds.brokers.catalog_index import CatalogIndex, CollectionIndex
from changefeed.feeds.brokers.topology import partition_info, without_partitions

_PIECE = 128
"""Partitions, of one era: they take two milliseconds."""
_PARTITIONS = b'"partitions":['


class _Place(NamedTuple):
    collection: str
    era: int
    number: int


class _Piece(NamedTuple):
    """``json`` is what is shown of these partitions, with a comma before each."""

    partitions: Sequence[Partition]
    json: bytes


class Topologies:
    """What was made is taken only for partitions that are as they were, in every field.

    So it does not matter which of several calls, with an older or a newer catalog, made it.
    """

    def __init__(self) -> None:
        self._made: dict[_Place, _Piece] = {}

    async def show(
        self, index: CatalogIndex, name: str, *, since_era: int = 0
    ) -> Sequence[bytes]:
        """Return pieces that joined are a ``Topology``, with the partitions since an era.

        All are of this one catalog, also if there is a newer one meanwhile. Those of the
        newest era are always there.
        """
        found = index.collection(name)
        shown: list[bytes] = []
        for place, partitions in _in_pieces(found, min(since_era, found.newest_era)):
            if shown:
                await asyncio.sleep(0)
            shown.append(self._json(found, place, partitions))
        without = msgspec.json.encode(without_partitions(index, name))
        head, opening, tail = without.partition(_PARTITIONS)  # names have no quotation marks
        assert opening, f"there is no place for partitions in {without!r}"
        return [head + opening, *(x[1:] for x in shown[:1]), *shown[1:], tail]

    def _json(
        self, found: CollectionIndex, place: _Place, partitions: Sequence[Partition]
    ) -> bytes:
        made = self._made.get(place)
        if made is not None and made.partitions == partitions:
            json = made.json
        else:
            infos = msgspec.json.encode([partition_info(found, x) for x in partitions])
            json = b"," + infos[1:-1]
        self._made[place] = _Piece(partitions, json)  # of the newer catalog: one is in memory
        return json


def _in_pieces(
    found: CollectionIndex, since_era: int
) -> Iterator[tuple[_Place, Sequence[Partition]]]:
    """Cut the partitions since an era, which are in order, where eras end and in between."""
    partitions = found.since(since_era)
    at = number = 0
    while at < len(partitions):
        era = partitions[at].era
        piece = partitions[at : at + _PIECE]
        if piece[-1].era != era:
            piece = tuple(x for x in piece if x.era == era)
        assert piece, f"era {era} would be cut for ever"
        yield _Place(found.collection.name, era, number), piece
        at += len(piece)
        is_same_era = at < len(partitions) and partitions[at].era == era
        number = number + 1 if is_same_era else 0

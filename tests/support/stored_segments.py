"""Segments of a cluster's store, made of what its flushes hold."""

import io
from collections.abc import Mapping

from changefeed.feeds.brokers.flush import Place, decode_header, section_columns
from changefeed.feeds.brokers.names import segment_key
from changefeed.feeds.eventlog.block_format import Layout, joined
from changefeed.feeds.eventlog.segments import Groups, Records, write_segment
from changefeed.feeds.feed import RangeId


def sections_of(
    objects: Mapping[str, bytes], cluster: str, collection: str, name: RangeId
) -> Mapping[int, Layout]:
    """Return the sections of a partition by their first sequences."""
    found = {}
    for key, data in objects.items():
        folder, _, rest = key.partition("/")
        if folder != "wal":
            continue
        era, broker, number = rest.split("/")
        header = decode_header(data, cluster, Place(int(era), broker, int(number)))
        for x in header.sections:
            if (x.collection, x.partition) == (collection, name):
                found[x.first] = section_columns(data, x)
    return dict(sorted(found.items()))


def segment_of(
    objects: Mapping[str, bytes], cluster: str, collection: str, name: RangeId, *, of: range
) -> tuple[str, bytes]:
    """Return the key and the bytes of a segment with some sequences, in two row groups.

    Sections begin and end where it does.
    """
    sections = sections_of(objects, cluster, collection, name)
    middle = of[len(of) // 2]

    def groups() -> Groups:
        for begin, end in ((of.start, middle), (middle, of.stop)):
            found = {x: y for x, y in sections.items() if begin <= x < end}
            if found:
                yield Records(first=min(found), latest_us=0, layout=joined(found.values()))

    file = io.BytesIO()
    write_segment(file, name, groups)
    return segment_key(collection, name, of[0], of[-1]), file.getvalue()

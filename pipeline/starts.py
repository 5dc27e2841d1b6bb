"""Where the first batch of a query begins, settled once and kept beside its checkpoint.

Spark logs where a batch ends, and the first batch begins where the source says. After a
crash in that batch Spark asks the source again, and "now" would be later then: changes in
between would never be read. Counting what the first batch read needs its beginning, too.
"""

from changefeed.pipeline.checkpoint_dir import begun, is_elsewhere, keep_start, kept_start
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.options import point
from changefeed.pipeline.source.planning import first_offset
from changefeed.pipeline.source.reader import Access


def settle_start(checkpoint: str, start: str, access: Access) -> str:
    """Return what the option ``startingAt`` of a query is to be: an offset, where it is known.

    ``start`` is what the user says; it counts until a batch was begun. A checkpoint that is
    not on this machine keeps none. Raise ``PipelineRefused`` if it is lost.
    """
    if is_elsewhere(checkpoint):
        return start
    if begun(checkpoint):
        return kept_start(checkpoint)
    wanted = point(start, "start")
    first = wanted if isinstance(wanted, Offset) else first_offset(access, wanted)
    keep_start(checkpoint, first.as_text())
    return first.as_text()

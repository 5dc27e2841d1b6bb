"""Where the first batch of a query begins, resolved once and kept beside its checkpoint.

Spark logs where a batch ends, and the first batch begins where the source says. After a
crash in that batch Spark asks the source again, and "now" would be later then: changes in
between would never be read. Counting what the first batch read needs its beginning, too.
"""

from pathlib import Path
from typing import Final

from changefeed.leases.position_file import read
from changefeed.pipeline.checkpoint_dir import begun, is_elsewhere, keep_start, kept_start
from changefeed.pipeline.lease_offsets import offset_of
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.options import point
from changefeed.pipeline.source.planning import first_offset
from changefeed.pipeline.source.reader import Access
from changefeed.runtime.errors import UserError

_FILE: Final = "file:"


def resolve(checkpoint: str, start: str, access: Access) -> Offset:
    """Return the offset that a query begins with.

    ``start`` is what the user says: a point in the feed, or ``file:`` and a file of positions
    of hosts. It counts until a batch was begun. A checkpoint that is not on this machine
    keeps none. Raise ``UserError`` if it is lost.
    """
    if begun(checkpoint):
        return kept_start(checkpoint)
    first = _first(start, access)
    if not is_elsewhere(checkpoint):
        keep_start(checkpoint, first.as_text())
    return first


def _first(start: str, access: Access) -> Offset:
    if start.startswith(_FILE):
        return offset_of(read(_document(Path(start.removeprefix(_FILE)))), access)
    wanted = point(start, "start")
    return wanted if isinstance(wanted, Offset) else first_offset(access, wanted)


def _document(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UserError(f"start: {file} cannot be read: {error.strerror}") from error

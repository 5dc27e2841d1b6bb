"""A fleet's positions and lineage, written down."""

import os
from datetime import UTC, datetime
from pathlib import Path

from changefeed.cli.existing import existing_leases
from changefeed.cli.io.report import say, write_document
from changefeed.feeds.addresses import open_feed
from changefeed.fleet.phrases import counted
from changefeed.fleet.restore import read_all
from changefeed.host.settings import Settings
from changefeed.leases.errors import checkpoint_is_lost
from changefeed.leases.position_file import read_document, written
from changefeed.runtime.errors import UserError
from changefeed.runtime.named_file import write_into


async def export(settings: Settings, file: str) -> None:
    """Write the positions into a file, or to standard output for ``-``."""
    document = await _document(settings)
    if file == "-":
        write_document(document)
        return
    write_file(Path(file), document)
    say(f"{file}: {counted(len(read_document(document).positions), 'lease')}")


async def _document(settings: Settings) -> bytes:
    async with (
        existing_leases(settings) as container,
        open_feed(settings.feed.address, settings.open_options) as feed,
    ):
        leases = await read_all(container)
        if leases is None:
            raise UserError("ranges split or end all the time: try again later")
        lost = [x for x in leases if x.position is None]
        if lost:
            raise UserError(checkpoint_is_lost(lost[0].range_id))
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return written(leases, feed=feed.identity, saved_at=now)


def write_file(file: Path, document: bytes) -> None:
    """Replace a file at once or not at all; write into what is none, a device or a pipe."""
    try:
        if file.exists() and not file.is_file():
            write_into(file, document)
        else:
            _replace_file(file.resolve(), document)
    except (OSError, ValueError, RuntimeError) as error:  # "/" and the like; links in a circle
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{str(file)!r} cannot be written: {reason}") from error


def _replace_file(file: Path, document: bytes) -> None:
    fresh = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with fresh.open("wb") as writing:
            writing.write(document)
            writing.flush()
            os.fsync(writing.fileno())
        fresh.replace(file)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise

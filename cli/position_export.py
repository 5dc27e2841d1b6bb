"""A fleet's positions and lineage, written down."""

from datetime import UTC, datetime

from changefeed.cli.existing_leases import existing_leases
from changefeed.cli.io.files import write_out
from changefeed.cli.io.report import say
from changefeed.feeds.addresses import open_feed
from changefeed.fleet.restore import read_all
from changefeed.host.settings import Settings
from changefeed.leases.errors import checkpoint_is_lost
from changefeed.leases.position_file import read_document, written
from changefeed.runtime.errors import UserError
from changefeed.runtime.quantities import counted


async def export(settings: Settings, file: str) -> None:
    """Write the positions into a file, or to standard output for ``-``."""
    document = await _document(settings)
    if write_out(file, document):
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

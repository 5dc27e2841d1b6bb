"""``changefeed run``: this process is a host of each processor, or supervises several such."""

from changefeed.cli import import_structlog
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import Processes, StopAtEof, with_flags
from changefeed.cli.host_flags import HostFlags


@with_flags
def run(
    flags: HostFlags, *, processes: Processes = None, stop_at_eof: StopAtEof = False
) -> None:
    """Run one host: share the ranges of a feed with the other hosts of the fleet.

    SIGTERM or Ctrl-C stops it in an orderly way, a second one at once. Settings come from
    these flags, from the environment (CHANGEFEED_LEASES__EXPIRATION=20) and from a file. Where
    they have \\[processors.NAME], one process is a host of each, or of those that --processor
    names; all stop together, and one that fails stops the others.

    Ends with 0 after a stop, 2 if something must be changed first, 1 for other failures.
    With --processes, a host that dies is started again, and the worst code is that of all.
    """
    import_structlog()
    if processes is None:
        from changefeed.host.run import run_hosts

        with exit_on_error():
            run_hosts(flags.each_settings(), stop_at_eof=stop_at_eof)
    else:
        from changefeed.cli.hosts import run_several

        with exit_on_error():
            run_several(flags, flags.each_settings(), processes)

"""``changefeed run``: this process is one host, or supervises several."""

from typing import Never

from changefeed.cli.children import Processes, StopAtEof, run_processes
from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import HostFlags
from changefeed.host.run import run_host
from changefeed.host.settings import Settings
from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import set_up_logs


@with_flags
def run(
    flags: HostFlags, *, processes: Processes = None, stop_at_eof: StopAtEof = False
) -> None:
    """Run one host: share the ranges of a feed with the other hosts of the fleet.

    SIGTERM or Ctrl-C stops it in an orderly way, a second one at once. Settings come from
    these flags, from the environment (CHANGEFEED_LEASES__EXPIRATION=20) and from a file.
    Ends with 0 after a stop, 2 if something must be changed first, 1 for other failures.
    With --processes, a host that dies is started again, and the worst code is that of all.
    """
    with exit_on_error():
        settings = flags.settings()
        if processes is None:
            run_host(settings, stop_at_eof=stop_at_eof)
        else:
            _run_hosts(flags, settings, processes)


def _run_hosts(flags: HostFlags, settings: Settings, count: int) -> Never:
    if settings.observer.name is None:
        raise UserError("no observer was named; give one with --observer, e.g. log")
    set_up_logs(settings.log)
    run_processes(
        settings.host.name,
        count,
        lambda name, index: arguments_of(flags, settings, name, index),
        stop_timeout=settings.host.stop_timeout,
    )


def arguments_of(flags: HostFlags, settings: Settings, name: str, index: int) -> list[str]:
    """Return the arguments of one host of several. A fixed port is that of the first one."""
    first = settings.web.port
    ports = [f"--set=web.port={first + index}"] if isinstance(first, int) and first else []
    return ["run", *flags.arguments_of_child(), *ports, f"--name={name}"]

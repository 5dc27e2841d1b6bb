"""Running several hosts under one supervisor."""

from collections.abc import Mapping
from typing import Never

from changefeed.cli.children import run_processes
from changefeed.cli.host_flags import HostFlags
from changefeed.host.settings import Settings, settings_of_process
from changefeed.runtime.errors import UserError
from changefeed.runtime.logs import set_up_logs


def run_several(flags: HostFlags, processors: Mapping[str, Settings], count: int) -> Never:
    """Supervise ``count`` processes, each with a host of each processor, until all have
    ended.
    """
    settings = settings_of_process(processors)
    if any(x.observer.name is None for x in processors.values()):
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

"""Running several brokers under one supervisor."""

from dataclasses import replace
from typing import Never

from changefeed.cli.children import run_processes
from changefeed.cli.commands.broker import BrokerFlags
from changefeed.log.brokers.settings import BrokerSettings
from changefeed.runtime.logs import set_up_logs


def run_several(flags: BrokerFlags, settings: BrokerSettings, count: int) -> Never:
    """Supervise ``count`` brokers until all have ended."""
    set_up_logs(settings.log)
    run_processes(
        settings.broker.name,
        count,
        lambda name, index: arguments_of(flags, settings, name, index),
        stop_timeout=settings.broker.stop_timeout,
    )


def arguments_of(
    flags: BrokerFlags, settings: BrokerSettings, name: str, index: int
) -> list[str]:
    """Return the arguments of one broker of several. A fixed port is that of the first one."""
    port = settings.web.port and settings.web.port + index
    return ["broker", *replace(flags, name=name).arguments(), f"--set=web.port={port}"]

"""Logs, metrics and signals of a command that runs queries."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry

from changefeed.pipeline.settings import PipelineSettings
from changefeed.pipeline.shutdown import Stopping
from changefeed.runtime.logs import set_up_logs
from changefeed.runtime.telemetry import telemetry


@contextmanager
def report_and_stop(
    settings: PipelineSettings,
) -> Iterator[tuple[Stopping, CollectorRegistry]]:
    """Set up logs and metrics, and handle signals, until the block is left."""
    stop = Stopping()
    instance = f"{socket.gethostname()}:{settings.directory}"  # several may be on one machine
    with telemetry("changefeed-pipeline", instance, os.environ) as counting:
        set_up_logs(settings.log, counting.log_handlers)
        with stop.by_signals():
            yield stop, counting.registry

"""The host processes: each is the ``changefeed`` command, as anyone would run it."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

_ROOT = Path(__file__).parents[2]
_STOP_TIMEOUT = 40.0
_LOG_LINES_SHOWN = 5

# Short times, so that a failover can be watched. Real fleets have ten times these.
_SETTINGS = {
    "leases.expiration": 3,
    "leases.renew_interval": 0.8,
    "leases.fence_margin": 0.5,
    "leases.balance_interval": 0.5,
    "leases.rebalance_delay": 1,
    "leases.call_timeout": 2,
    "feed.poll_interval": 0.2,
    "web.enabled": False,
    "log.format": "json",
}


class HostEnded(Exception):
    """A host ended that should not have, or not in this way. The text shows its log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all hosts are to do. ``rate`` is in changes a second for each range."""

    feed: str
    leases: str
    observed: Path
    logs: Path
    page_size: int
    rate: float | None = None

    def command(self, name: str) -> Sequence[str]:
        settings = {**_SETTINGS, "feed.page_size": self.page_size}
        options: dict[str, object] = {"directory": self.observed}
        if self.rate is not None:
            options["rate"] = self.rate
        return [
            *(sys.executable, "-m", "changefeed", "run", "--stop-at-eof", f"--name={name}"),
            *(f"--feed={self.feed}", f"--leases={self.leases}"),
            "--observer=samples.flights.observer:CarrierDelays",
            *(f"--option={key}={value}" for key, value in options.items()),
            *(f"--set={key}={value}" for key, value in settings.items()),
        ]


class Hosts:
    """Starts, kills and stops hosts. Leaving the ``async with`` kills those that still run.

    Should this process itself be killed, their standard input ends, and they stop.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._running: dict[str, Process] = {}
        self._states: dict[str, str] = {}

    @property
    def states(self) -> Mapping[str, str]:
        """What became of each host that was ever started, in that order."""
        return self._states

    @property
    def running(self) -> Sequence[str]:
        return [name for name, state in self._states.items() if state == "running"]

    async def start(self, name: str) -> None:
        with self._log(name).open("ab") as log:
            self._running[name] = await asyncio.create_subprocess_exec(
                *self._job.command(name),
                cwd=_ROOT,
                env={x: v for x, v in os.environ.items() if not x.startswith("CHANGEFEED_")},
                stdin=PIPE,
                stdout=log,
                stderr=log,
            )
        self._states[name] = "running"

    async def kill(self, name: str) -> None:
        """Kill it as the system would: it gets to do nothing more."""
        self._states[name] = "killed"
        process = self._running.pop(name)
        process.kill()
        await process.wait()

    async def stop_all(self) -> None:
        """Ask all to stop. Raise ``HostEnded`` if one fails to, or does not in time."""
        for name, process in self._running.items():
            self._states[name] = "stopping"
            process.send_signal(signal.SIGTERM)
        for name, process in list(self._running.items()):
            try:
                async with asyncio.timeout(_STOP_TIMEOUT):
                    code = await process.wait()
            except TimeoutError:
                raise self._ended(name, "did not stop in time") from None
            if code:
                raise self._ended(name, f"ended with code {code} when asked to stop")
            self._states[name] = "stopped"
            del self._running[name]

    def check(self) -> None:
        """Raise ``HostEnded`` if one has ended that nobody stopped."""
        for name, process in self._running.items():
            if process.returncode is not None:
                raise self._ended(name, f"ended by itself, with code {process.returncode}")

    async def __aenter__(self) -> Self:
        self._job.logs.mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in self._running.values():
            if process.returncode is None:
                process.kill()
        for process in self._running.values():
            await process.wait()

    def _log(self, name: str) -> Path:
        return self._job.logs / f"{name}.log"

    def _ended(self, name: str, how: str) -> HostEnded:
        lines = self._log(name).read_text(encoding="utf-8").splitlines()
        return HostEnded(
            "\n".join([f"{name} {how}; its log ends:", *lines[-_LOG_LINES_SHOWN:]])
        )

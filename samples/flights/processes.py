"""The host processes of a run: started, killed and stopped."""

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from .hosts import HostJob

_ROOT = Path(__file__).parents[2]
_STOP_TIMEOUT = 40.0
_LOG_LINES_SHOWN = 5


class ProcessEnded(Exception):
    """A process ended that should not have, or not in this way. The text shows its log."""


class Processes:
    """Starts, kills and stops processes. Leaving the block kills those that still run.

    Should this process itself be killed, their standard input ends, and they stop.
    """

    def __init__(self, job: HostJob) -> None:
        self._job = job
        self._running: dict[str, Process] = {}
        self._states: dict[str, str] = {}

    @property
    def states(self) -> Mapping[str, str]:
        """What became of each that was ever started, in that order."""
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
        """Ask all to stop. Raise ``ProcessEnded`` if one fails to, or does not in time."""
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
        """Raise ``ProcessEnded`` if one has ended that nobody stopped."""
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

    def _ended(self, name: str, how: str) -> ProcessEnded:
        lines = self._log(name).read_text(encoding="utf-8").splitlines()
        return ProcessEnded(
            "\n".join([f"{name} {how}; its log ends:", *lines[-_LOG_LINES_SHOWN:]])
        )

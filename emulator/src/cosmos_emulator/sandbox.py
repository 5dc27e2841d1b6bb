"""V8 for scripts: in processes beside this one, which hold nothing of the emulator.

A process serves one script after the other, each in a new context. A script that takes too long
or too much memory ends its process; the next one gets another.
"""

import contextlib
import importlib.util
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Final

from cosmos_emulator.errors import CosmosError, bad_request, not_supported

SECONDS: Final = 5.0
"""So long may a script take, as in an account."""
COMPILE_ERROR: Final = 65535
_HERE: Final = Path(__file__).parent
_MAX_IDLE: Final = 2  # of some 70 MB each
_SHORTEST: Final = 0.001  # a timer of zero never ends


class Sandbox:
    """One process. One thread at a time uses it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - a program of ours
            [sys.executable, "-P", str(_HERE / "sandbox_child.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def open(self, seconds: float) -> None:
        """Make a new context, which ends its process when the seconds are over."""
        api = (_HERE / "collection.js").read_text()
        self._ask("open", max(seconds, _SHORTEST), api)

    def call(self, function: str, text: str) -> str:
        """Call a function of the context with a text; it returns one, or nothing."""
        return self._ask("call", function, text)

    def close(self) -> None:
        self._ask("close")

    def end(self) -> None:
        """End the process. Any thread may call this."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):  # of what was still to be written
                pipe.close()

    def _ask(self, *command: object) -> str:
        read, write = self._process.stdout, self._process.stdin
        assert read is not None
        assert write is not None
        try:
            write.write(json.dumps(command).encode() + b"\n")
            write.flush()
            line = read.readline()
        except OSError:  # it has ended, as below
            line = b""
        if not line:
            raise self._ended()
        answer = json.loads(line)
        if "error" in answer:
            raise failed(answer["error"])
        return str(answer.get("value") or "")

    def _ended(self) -> CosmosError:
        match self._process.wait():
            case code if code == -signal.SIGALRM:
                return too_long()
            case code if code == -signal.SIGKILL:
                return CosmosError(
                    503, "The script was ended from outside: the emulator stops."
                )
            case _:
                return failed("The script needs more memory than a script may have.")


class Sandboxes:
    """The processes of one emulator. Those that are idle wait for the next script."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle: list[Sandbox] = []
        self._busy: set[Sandbox] = set()

    @contextmanager
    def opened(self, seconds: float) -> Iterator[Sandbox]:
        """Give a sandbox with a new context. Raises 400 where V8 is not installed."""
        sandbox = self._taken()
        try:
            sandbox.open(seconds)
            yield sandbox
        finally:
            self._give_back(sandbox)

    def _give_back(self, sandbox: Sandbox) -> None:
        with contextlib.suppress(CosmosError):  # it has ended
            sandbox.close()
            with self._lock:
                self._busy.discard(sandbox)
                if len(self._idle) < _MAX_IDLE:
                    self._idle.append(sandbox)
                    return
        self._busy.discard(sandbox)
        sandbox.end()

    def _taken(self) -> Sandbox:
        if importlib.util.find_spec("py_mini_racer") is None:
            raise not_supported(
                "To run a stored procedure, trigger or user-defined function",
                "Install cosmos-emulator[scripts], which brings V8.",
            )
        with self._lock:
            sandbox = self._idle.pop() if self._idle else Sandbox()
            self._busy.add(sandbox)
        return sandbox

    def close(self) -> None:
        for sandbox in (*self._idle, *self._busy):
            sandbox.end()


def failed(text: str) -> CosmosError:
    """Return the answer to a script that threw."""
    return bad_request(f"Encountered exception while executing Javascript. {text}")


def too_long() -> CosmosError:
    return CosmosError(
        408,
        f"The script took longer than it may: {SECONDS:g} seconds, or what its query has left. "
        f"Nothing of it was stored. Let it do a part of its work, and call it again: "
        f"createDocument and the like return false when the end is near.",
    )

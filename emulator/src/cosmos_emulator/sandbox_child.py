"""The program that runs scripts in V8: a process of its own, which a script may kill.

It reads a command on each line and answers with one: ``["open", seconds, source]`` makes a new
context and runs the source in it, ``["call", function, text]`` calls a function of the context
with a text, ``["close"]`` ends the context. The answer is ``{"value": text}`` or
``{"error": text}``.

V8 has no files, no network and no timers here. A context ends this process by SIGALRM when its
time is over, wherever V8 is then; what takes more memory than allowed ends it, too. So the
emulator needs nothing from it but the end of its output.
"""

import asyncio
import contextlib
import json
import resource
import signal
import sys
from typing import Any, Final

from py_mini_racer import JSEvalException, MiniRacer, mini_racer

_HEAP: Final = 64 * 1024 * 1024
_MEMORY: Final = 768 * 1024 * 1024  # of the process: V8 keeps some things outside of its heap
_HIDDEN: Final = (
    "for (const x of ['setTimeout', 'clearTimeout', 'setInterval', 'clearInterval', "
    "'SharedArrayBuffer', 'Atomics', 'WebAssembly']) delete globalThis[x]"
)


async def main() -> None:
    """Answer until the input ends. Nothing else is on this loop, so that it may block."""
    resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.ExitStack() as opened:
        context: MiniRacer | None = None
        for line in sys.stdin.buffer:
            answer: dict[str, Any] = {}
            try:
                match json.loads(line):
                    case ["open", seconds, source]:
                        signal.setitimer(signal.ITIMER_REAL, seconds)
                        context = opened.enter_context(mini_racer())
                        context.set_hard_memory_limit(_HEAP)
                        context.eval(_HIDDEN)
                        context.eval(source)
                    case ["call", name, text]:
                        assert context is not None
                        found = context.eval(f"{name}({json.dumps(text)})")
                        answer["value"] = found if isinstance(found, str) else None
                    case ["close"]:
                        opened.close()
                        signal.setitimer(signal.ITIMER_REAL, 0)
            except JSEvalException as error:
                answer = {"error": str(error)}
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    asyncio.run(main())

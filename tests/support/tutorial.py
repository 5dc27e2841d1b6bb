"""A tutorial followed to the letter: its files saved, its lines typed into a shell."""

import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.commands import QUICK
from tests.support.processes import beside, ended

ROOT = Path(__file__).parents[2]
GOES_ON = ("changefeed emulator", "changefeed run")
_SAVED = re.compile(r"Save this as `([\w.]+)`[^`]*?\n\n```\w+\n(.*?)```", re.DOTALL)
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Tutorial:
    """One page, or one section of it (``FILE#HEADING``), followed in ``cwd``.

    ``instead`` replaces what differs by reader.

    Blocks without a language are lines to type, those of ``text`` are what is printed.
    """

    def __init__(self, name: str, cwd: Path, instead: Mapping[str, str] | None = None) -> None:
        file, _, section = name.partition("#")
        text = (ROOT / file).read_text()
        if section:
            text = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
            assert text, name
        for old, new in (instead or {}).items():
            assert old in text
            text = text.replace(old, new)
        self.cwd = cwd
        blocks: list[tuple[str, str]] = _BLOCK.findall(text)
        self.lines = [line for kind, x in blocks if not kind for line in x.splitlines()]
        self.printed = [sorted(x.splitlines()) for kind, x in blocks if kind == "text"]
        for file, content in _SAVED.findall(text):
            (cwd / file).write_text(content)

    def next(self, beginning: str) -> str:
        """Return the next line of the page, which must begin so."""
        line = self.lines.pop(0)
        assert line.startswith(beginning), line
        return line

    def type(self, beginning: str, *, timeout: float = 60) -> str:
        """Type the next line, wait for its end, and return what it printed."""
        line = self.next(beginning)
        shell = ("bash", "-o", "pipefail", "-c", line)
        done = ended(*shell, cwd=self.cwd, env=_environment(), patience=timeout)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    @contextmanager
    def left_running(self, beginning: str) -> Iterator[Callable[[], list[str]]]:
        """Type the next line, and give what it prints, sorted; Ctrl-C at the end."""
        line = self.next(beginning)
        assert line.startswith(GOES_ON)
        out = self.cwd / f"printed-{len(self.lines)}"
        said = out.with_suffix(".err")
        shell = ("bash", "-c", f"exec {line}")
        with beside(
            *shell, cwd=self.cwd, said=said, printed=out, env=_environment()
        ) as process:
            yield lambda: sorted(out.read_text().splitlines())
            assert process.poll() is None, said.read_text()
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0, said.read_text()


def _environment() -> dict[str, str]:
    """Return a reader's environment, with the intervals of tests."""
    own = {k: v for k, v in os.environ.items() if not k.startswith(("CHANGEFEED_", "OTEL_"))}
    quick = [x.removeprefix("--set=").split("=") for x in QUICK]
    settings = {f"CHANGEFEED_{k.replace('.', '__').upper()}": v for k, v in quick}
    path = f"{Path(sys.executable).parent}:{own['PATH']}"
    return {**own, **settings, "PATH": path, "PYTHONPATH": str(ROOT)}

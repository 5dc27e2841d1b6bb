"""One deliberate break."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """``before`` stands exactly once in ``file``; ``after`` takes its place.

    ``rule`` is the section of the design's rules of a host that it breaks, zero if it is
    about something else. ``tests`` are
    the few that must notice, as pytest names them.
    """

    name: str
    file: str
    before: str
    after: str
    rule: int
    tests: tuple[str, ...]

    def __post_init__(self) -> None:
        assert self.tests, f"{self.name}: no test is named that may notice"
        assert self.before != self.after, f"{self.name}: it breaks nothing"

    def apply(self, root: Path) -> None:
        """Break the file under ``root``."""
        path = root / self.file
        path.write_text(self.broken(path.read_text()))

    def broken(self, text: str) -> str:
        """Return the broken text. Raise ``Stale`` where there is nothing to break."""
        found = text.count(self.before)
        if found != 1:
            raise Stale(
                f"mutant {self.name!r}: its text stands {found} times in {self.file}. The "
                f"code has changed: break it anew in tests/mutants, or drop the mutant"
            )
        return text.replace(self.before, self.after)


class Stale(Exception):
    """The code that a mutant breaks is not there, or more than once."""

"""The ``changefeed`` command: a door that first looks whose packages stand behind it.

Our packages have plain names (``host``, ``leases``, ``observers``, ``feeds``). A module of
the user's with one of these names, found earlier on the path, would be imported in our
place and fail in ways nobody could read. So the door imports nothing of ours before it
has checked where the names lead.

It also joins what know nothing of each other: the commands of hosts and those of the pipeline.
"""

import importlib.util
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typer import Typer

_HOME = Path(__file__).resolve().parent
_OURS = ("feeds", "leases", "observers", "process", "host", "emulator", "pipeline")


def _shadows() -> list[tuple[str, str]]:
    """Return (name, where it leads instead) for each of our packages that is hidden."""
    found = []
    for name in _OURS:
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec is not None and spec.origin else "nowhere"
        if Path(origin).resolve() != _HOME / name / "__init__.py":
            found.append((name, origin))
    return found


@cache
def commands() -> "Typer":
    """Return all commands: those of the host, and those of the pipeline among them."""
    from host.cli import app  # noqa: PLC0415 - only now is it known to be ours
    from pipeline.cli import app as pipeline  # noqa: PLC0415

    app.add_typer(pipeline, name="pipeline")
    return app


def main() -> None:
    """Run the command line; exit code 2 if a user's module stands in the way."""
    shadows = _shadows()
    for name, origin in shadows:
        sys.stderr.write(
            f"changefeed: the module {name!r} at {origin} hides the package {name!r} of "
            f"changefeed-host. Rename it, or take its folder off PYTHONPATH.\n"
        )
    if shadows:
        sys.exit(2)
    commands()()


if __name__ == "__main__":
    main()

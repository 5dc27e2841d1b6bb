"""The ``changefeed`` command: a door that first looks whose packages stand behind it.

Our packages have plain names (``host``, ``leases``, ``observers``, ``feeds``). A module of
the user's with one of these names, found earlier on the path, would be imported in our
place and fail in ways nobody could read. So the door imports nothing of ours before it
has checked where the names lead.
"""

import importlib.util
import sys
from pathlib import Path

_HOME = Path(__file__).resolve().parent
_OURS = ("feeds", "leases", "observers", "host", "emulator")


def _shadows() -> list[tuple[str, str]]:
    """Return (name, where it leads instead) for each of our packages that is hidden."""
    found = []
    for name in _OURS:
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec is not None and spec.origin else "nowhere"
        if Path(origin).resolve() != _HOME / name / "__init__.py":
            found.append((name, origin))
    return found


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
    from host.cli import app  # noqa: PLC0415 - only now is it known to be ours

    app()


if __name__ == "__main__":
    main()

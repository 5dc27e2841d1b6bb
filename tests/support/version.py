"""The version of the program, and the files that repeat it.

``changefeed/__init__.py`` says it. The chart and its manifests, the label of the image, and
what names the image cannot read it from there. ``make version VERSION=0.2.0`` writes it into
all of them.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "changefeed/__init__.py"
_REPEATED = re.compile(
    r"""(?P<before>changefeed-host: | image\.version=" | kubernetes\.io/version:\ "
        | ^version:\  | ^appVersion:\  | ^__version__\ =\ ")
        (?P<version>\d+\.\d+\.\d+\w*)""",
    re.MULTILINE | re.VERBOSE,
)
_FOLDERS = ("deploy", "docs", "samples", "tests/integration/deploy")


def files() -> Iterator[Path]:
    yield from (SOURCE, ROOT / "Dockerfile", ROOT / "compose.yaml")
    for folder in _FOLDERS:
        found = (ROOT / folder).rglob("*")
        yield from (x for x in found if x.suffix in (".md", ".yaml") or x.name == "Dockerfile")


def said() -> Iterator[tuple[Path, str]]:
    """Yield each place that says a version: its file, and the version."""
    for file in files():
        for found in _REPEATED.finditer(file.read_text()):
            yield file.relative_to(ROOT), found["version"]


def say(version: str) -> None:
    """Write the version into all places."""
    for file in files():
        text = file.read_text()
        changed = _REPEATED.sub(rf"\g<before>{version}", text)
        if changed != text:
            file.write_text(changed)


if __name__ == "__main__":
    say(sys.argv[1])

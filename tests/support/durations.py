"""What the tests of each folder cost, as a table for docs/design/tests.md.

``python -m tests.support.durations build/tests.xml`` reads what ``make test`` has recorded.
"""

import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]


def main(report: str) -> None:
    seconds: defaultdict[str, list[float]] = defaultdict(list)
    for test in ET.parse(report).iter("testcase"):
        seconds[_folder(test.get("classname", ""))].append(float(test.get("time", 0)))
    print("| folder | tests | seconds | slowest |\n|---|---|---|---|")  # noqa: T201
    for name, found in sorted(seconds.items(), key=lambda x: -sum(x[1])):
        print(f"| `{name}` | {len(found):,} | {sum(found):.0f} | {max(found):.1f} |")  # noqa: T201


def _folder(module: str) -> str:
    """Return the folder of a test's module, two levels deep."""
    parts = module.split(".")
    while not (ROOT / Path(*parts)).is_dir():
        parts.pop()
    return "/".join(parts[:3])


if __name__ == "__main__":
    main(sys.argv[1])

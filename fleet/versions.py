"""Whether all hosts of a fleet have one version, as their member records say.

A rolling restart makes hosts differ for a while, and that is meant; what stays different is a
host that was left out.
"""

import re
from collections.abc import Iterator, Sequence

from changefeed.fleet.status import HostStatus
from changefeed.runtime.diagnostics import Diagnostic, warning


def older_versions(members: Sequence[HostStatus], software: str) -> Iterator[Diagnostic]:
    """Find them among the hosts that live. ``software`` is the version of this program."""
    known = [x for x in members if x.version]
    unknown = [x.name for x in members if not x.version]
    if unknown and software:
        yield warning(
            _hosts(unknown),
            f"there is no version in the record; this command is {software}",
            "give all hosts the same version",
        )
    newest = max((software, *(x.version for x in known)), key=_order)
    by_version: dict[str, list[str]] = {}
    for member in known:
        if _order(member.version) < _order(newest):
            by_version.setdefault(member.version, []).append(member.name)
    for version, names in sorted(by_version.items(), key=lambda x: _order(x[0])):
        than = "this command" if _order(newest) == _order(software) else "other hosts"
        yield warning(
            _hosts(names),
            f"version {version}, older than {newest} of {than}",
            "finish the upgrade: different versions are for rolling restarts only",
        )


def _order(version: str) -> tuple[tuple[int, ...], bool]:
    """Compare 0.10 with 0.9 as people do; a release comes after what led to it."""
    numbers, rest = re.match(r"([\d.]*)(.*)", version, re.DOTALL).groups()  # type: ignore[union-attr]
    return tuple(int(x) for x in numbers.split(".") if x), not rest


def _hosts(names: Sequence[str]) -> str:
    return f"host {names[0]}" if len(names) == 1 else f"hosts {', '.join(sorted(names))}"

"""The status of a fleet as tables: who is in it, who owns what, and how far each range is."""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from typing import NamedTuple

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from changefeed.cli.commands.status import Sort
from changefeed.cli.existing_leases import existing_fleet
from changefeed.cli.io.documents import as_json
from changefeed.cli.io.tables import a_table, plain, print_whole, refreshed
from changefeed.fleet.status import (
    BAD,
    FleetDocument,
    FleetStatus,
    HostStatus,
    RangeStatus,
    Totals,
)
from changefeed.host.settings import Settings
from changefeed.runtime.errors import StoreUnavailable, UserError
from changefeed.runtime.quantities import counted

_EVERY = 1.0
_MILD = ("paused", "unowned")


class View(NamedTuple):
    """Which ranges are shown, and in which order. ``pattern`` is for names of ranges or owners,
    or a state: ``*`` stands for anything.
    """

    sort: Sort = Sort.RANGE
    pattern: str = "*"

    def of(self, ranges: Sequence[RangeStatus]) -> Sequence[RangeStatus]:
        """Return what is shown. A figure that is not known comes last."""
        return sorted(filter(self._matches, ranges), key=self._key)

    def _matches(self, x: RangeStatus) -> bool:
        named = (x.range, x.owner, x.next_owner, x.state)
        return any(y is not None and fnmatchcase(y, self.pattern) for y in named)

    def _key(self, x: RangeStatus) -> tuple[object, ...]:
        if self.sort is Sort.RANGE:
            return (x.range,)
        if self.sort is Sort.OWNER:
            return (x.owner is None, x.owner or "", x.range)
        figure = getattr(x, {Sort.LAG_TIME: "lag_seconds"}.get(self.sort, self.sort.value))
        return (figure is None, -(figure or 0), x.range)


_ALL = View()


def refuse_contradictions(view: View, *, json: bool, watch: bool) -> None:
    """Raise ``UserError`` for flags that do not go together."""
    if json and view != View():
        raise UserError("--sort and --filter are for tables: --json shows all ranges")
    if view.sort is Sort.RATE and not watch:
        raise UserError("a rate needs two samples: use --sort=rate with --watch")


async def print_tables(settings: Settings, view: View) -> None:
    """Look once."""
    async with existing_fleet(settings) as fleet:
        print_whole(as_tables(await fleet.look(None), view))


async def print_json(settings: Settings, *, watch: bool) -> None:
    """Look once, or each second, with a line for each look."""
    async with existing_fleet(settings, rates=watch) as fleet:
        seen = None
        while True:
            seen = await fleet.look(seen)
            typer.echo(as_json(FleetDocument.of(seen), indented=not watch))
            if not watch:
                return
            await asyncio.sleep(_EVERY)


async def watch_tables(settings: Settings, view: View) -> None:
    """Look each second, until Ctrl-C."""
    async with existing_fleet(settings, rates=True) as fleet:
        seen = await fleet.look(None)
        with refreshed() as show:
            show(as_tables(seen, view))
            while True:
                await asyncio.sleep(_EVERY)
                try:
                    seen = await fleet.look(seen)
                    show(as_tables(seen, view))
                except StoreUnavailable as error:
                    show(plain(str(error), "red"))


def as_tables(seen: FleetStatus, view: View = _ALL) -> RenderableType:
    """Return a status as tables, with what needs attention below."""
    shown = view.of(seen.ranges)
    hidden = [Text(f"{len(shown)} of {len(seen.ranges)} ranges are shown")]
    if len(shown) == len(seen.ranges):
        hidden = []
    caption = (
        f"Stamps are by the clocks of the hosts. A host is dead if its stamp is older than "
        f"{seen.expiration:g} s, or has not changed for so long."
    )
    return Group(
        plain(_summary(seen), "bold"),
        _hosts(seen.hosts),
        _ranges(shown),
        *hidden,
        Text(caption, style="dim"),
        *_notes(seen),
    )


def _summary(seen: FleetStatus) -> str:
    leased = [x for x in seen.ranges if x.leased]
    states = Counter(x.state for x in leased)
    noted = [f"{states[x]} {x}" for x in (*BAD, "waiting", "ended") if states[x]]
    leases = counted(len(leased), "lease") + (f" ({', '.join(noted)})" if noted else "")
    bare = len(seen.ranges) - len(leased)
    without = f", {counted(bare, 'range')} without a lease" if bare else ""
    at = datetime.fromtimestamp(seen.at, UTC)
    return (
        f"{counted(len(seen.hosts), 'host')}, {leases}{without}, "
        f"{_behind(seen.total)} in {seen.feed}, {at:%Y-%m-%d %H:%M:%S} UTC"
    )


def _behind(total: Totals) -> str:
    """Say how far the fleet is behind. Of a range that the feed says nothing of, or that has
    no position or no lease yet, that is not known.
    """
    if total.lag is not None:
        return f"{counted(total.lag, 'change')} behind"
    if total.lag_at_least is None:
        return "behind by an unknown number"
    return f"at least {counted(total.lag_at_least, 'change')} behind"


def _notes(seen: FleetStatus) -> Iterable[Text]:
    """Bring what differs only in its range together: a fleet that was stopped is one line."""
    for one in seen.problems:
        about = one.kind if one.range is None else f"{one.kind}: {one.range}"
        yield plain(f"{about}: {one.message}", "red")
    alike: dict[tuple[str, ...], list[RangeStatus]] = {}
    for x in seen.ranges:
        if x.state in BAD:
            since = (
                "" if x.since is None or x.state == "unowned" else f" since {_time(x.since)}"
            )
            owner = "" if x.owner is None else f" on {x.owner}"
            alike.setdefault((x.state, owner, since, x.note or ""), []).append(x)
    for state, owner, since, note in sorted(alike, key=lambda x: BAD.index(x[0])):
        names = ", ".join(x.range for x in alike[state, owner, since, note])
        style = "yellow" if state in _MILD else "red"
        yield plain(f"{state}: {names}{owner}{since}: {note}", style)


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def _hosts(hosts: Sequence[HostStatus]) -> Table:
    names = ("host", "ranges", "load", "stamp age", "state", "web", "version", "incarnation")
    rows = (
        (
            x.name,
            str(x.total.ranges),
            _load(x.total.load),
            _seconds(x.stamp_age),
            x.state,
            x.address,
            x.version,
            x.incarnation,
        )
        for x in hosts
    )
    return a_table(*names, rows=rows)


def _ranges(ranges: Sequence[RangeStatus]) -> Table:
    names = ["range", "owner", "state", "epoch", "load", "position", "lag", "lag time"]
    rates = any(x.rate is not None for x in ranges)
    rows = ((*_row(x), *([_rate(x.rate)] if rates else [])) for x in ranges)
    return a_table(*names, *(["changes/s"] if rates else []), rows=rows)


def _row(x: RangeStatus) -> Sequence[str]:
    owner = x.owner or ("-" if x.state == "unowned" else "")
    if x.next_owner is not None:
        owner = f"{owner} → {x.next_owner}"
    lag = "" if x.lag is None else f"{x.lag:,}"
    lag_time = _seconds(x.lag_seconds)
    return x.range, owner, x.state, str(x.epoch), _load(x.load), x.position or "", lag, lag_time


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}"


def _load(load: float | None) -> str:
    return "" if load is None else f"{load:.2f}"


def _seconds(age: float | None) -> str:
    return "" if age is None else f"{age:.1f} s"

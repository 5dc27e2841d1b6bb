"""``changefeed status``: who is in the fleet, who owns what, and how far each range is."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from changefeed.cli.exit_codes import exit_on_error
from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import FeedFlags
from changefeed.cli.io.documents import as_json
from changefeed.cli.io.lease_view import LeaseView, Sort, troubles
from changefeed.cli.io.prometheus import as_prometheus
from changefeed.cli.io.tables import a_table, plain, print_whole
from changefeed.host.operations.phrases import counted
from changefeed.host.problems import Problem
from changefeed.host.rates import rates as rates_between
from changefeed.host.scaling import DEFAULT_LAG_PER_HOST, desired_hosts
from changefeed.host.settings import Settings
from changefeed.host.snapshot import FleetInspector, LeaseStatus, Snapshot
from changefeed.host.states import RangeState
from changefeed.runtime.errors import StoreUnavailable, UserError

_EVERY = 1.0
_RATE_OVER = 11
"""So many looks: rates are of the ten seconds between the first and the last."""
_ALL = LeaseView()
_NOTED: Final[Sequence[RangeState]] = (
    "stuck",
    "failing",
    "expired",
    "unowned",
    "waiting",
    "paused",
    "ended",
)


class StatusRefused(UserError):
    """These flags contradict each other."""


@with_flags
def status(
    flags: FeedFlags,
    *,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    prometheus: Annotated[
        bool, typer.Option("--prometheus", help="Print lags as metrics, as hosts name them.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Again each second.")] = False,
    sort: Annotated[
        Sort, typer.Option("--sort", help="The order of ranges: the largest figures first.")
    ] = Sort.RANGE,
    filter_: Annotated[
        str,
        typer.Option(
            "--filter",
            help="Only ranges of such a name, owner or state (unowned, failing, stuck, paused, "
            "…); * is anything.",
        ),
    ] = "*",
) -> None:
    """Show members, leases and lag, from the lease container; hosts need not run.

    With --json and --watch, each look is one line. With --prometheus, write it to a file for
    the textfile collector of a node exporter, or for a Pushgateway.
    """
    with exit_on_error():
        view = LeaseView(sort=sort, pattern=filter_)
        _refuse_contradictions(view, json=json, prometheus=prometheus, watch=watch)
        settings = flags.settings()
        with suppress(KeyboardInterrupt):
            if prometheus:
                asyncio.run(_print_prometheus(settings))
            elif json:
                asyncio.run(_print_json(settings, watch=watch))
            else:
                asyncio.run((_watch if watch else _print_tables)(settings, view))


def _refuse_contradictions(
    view: LeaseView, *, json: bool, prometheus: bool, watch: bool
) -> None:
    if prometheus and (json or watch):
        raise StatusRefused("--prometheus goes with neither --json nor --watch")
    if (prometheus or json) and view != LeaseView():
        raise StatusRefused("--sort and --filter are for tables: what programs read has it all")
    if view.sort is Sort.RATE and not watch:
        raise StatusRefused("rates take two looks: --sort=rate goes with --watch only")


async def _print_tables(settings: Settings, view: LeaseView) -> None:
    async with FleetInspector.of(settings) as fleet:
        print_whole(rendered(await fleet.look(), view))


async def _print_json(settings: Settings, *, watch: bool) -> None:
    async with FleetInspector.of(settings) as fleet:
        while True:
            typer.echo(as_json(_document(await fleet.look()), indented=not watch))
            if not watch:
                return
            await asyncio.sleep(_EVERY)


def _document(seen: Snapshot) -> dict[str, object]:
    found: dict[str, object] = msgspec.to_builtins(seen)
    desired = desired_hosts(seen, lag_per_host=DEFAULT_LAG_PER_HOST)
    return {**found, "desired_hosts": desired}


async def _print_prometheus(settings: Settings) -> None:
    async with FleetInspector.of(settings) as fleet:
        seen = await fleet.look()
        typer.echo(as_prometheus(seen, lag_per_host=DEFAULT_LAG_PER_HOST), nl=False)


async def _watch(settings: Settings, view: LeaseView) -> None:
    async with FleetInspector.of(settings) as fleet:
        looks = deque([await fleet.look()], maxlen=_RATE_OVER)
        with Live(rendered(looks[-1], view, {}), auto_refresh=False, screen=True) as live:
            while True:
                await asyncio.sleep(_EVERY)
                try:
                    looks.append(await fleet.look())
                    now = (
                        {}
                        if fleet.feed is None
                        else await rates_between(fleet.feed, looks[0], looks[-1])
                    )
                    live.update(rendered(looks[-1], view, now), refresh=True)
                except StoreUnavailable as error:
                    live.update(plain(str(error), "red"), refresh=True)


def rendered(
    seen: Snapshot,
    view: LeaseView = _ALL,
    rates: Mapping[str, float] | None = None,
) -> RenderableType:
    """Return the snapshot as tables, with what needs attention below; with ``rates``, in
    changes a second, a column for them.
    """
    states = Counter(x.state for x in seen.leases)
    noted = [f"{states[x]} {x}" for x in _NOTED if states[x]]
    leases = counted(len(seen.leases), "lease") + (f" ({', '.join(noted)})" if noted else "")
    bare = [_without_lease(x) for x in seen.ranges_without_lease]
    ranges = [*seen.leases, *bare]
    without = f", {counted(len(bare), 'range')} without a lease" if bare else ""
    summary = (
        f"{counted(len(seen.members), 'member')}, {leases}{without}, "
        f"{_behind(seen)} in {seen.feed}, {seen.at:%Y-%m-%d %H:%M:%S} UTC"
    )
    shown = view.of(ranges, rates or {})
    hidden = [Text(f"{len(shown)} of {len(ranges)} ranges are shown")]
    if len(shown) == len(ranges):
        hidden = []
    caption = (
        f"Stamps are by the clocks of the hosts. A host is silent if its stamp is older than "
        f"{seen.expiration:g} s, or has not changed for so long."
    )
    return Group(
        plain(summary, "bold"),
        _members(seen),
        _leases(shown, rates),
        *hidden,
        Text(caption, style="dim"),
        *map(_note, noted_problems(seen.problems)),
    )


def _without_lease(name: str) -> LeaseStatus:
    """Return the row of a range that hosts have made no lease of yet."""
    return LeaseStatus(
        range=name,
        state="unowned",
        parents=(),
        owner=None,
        incarnation=None,
        next_owner=None,
        epoch=0,
        ended=False,
        paused=None,
        continuation=None,
        checkpoint_epoch=0,
        lag=None,
        lag_seconds=None,
        stamp_age=None,
    )


def _behind(seen: Snapshot) -> str:
    """Say how far the fleet is behind. Of a range that the feed says nothing of, or that has
    no position or no lease yet, that is not known.
    """
    known = [x.lag for x in seen.leases if x.lag is not None]
    open_ = sum(not x.ended for x in seen.leases)
    if seen.leases and len(known) == open_ and not seen.ranges_without_lease:
        return f"{counted(sum(known), 'change')} behind"
    if not known:
        return "behind by an unknown number"
    return f"at least {counted(sum(known), 'change')} behind"


def noted_problems(problems: Sequence[Problem]) -> list[tuple[Problem, Sequence[str]]]:
    """Bring what differs only in its range together: a fleet that was stopped is one line."""
    alike: dict[Problem, list[str]] = {}
    for problem in problems:
        since = None if problem.kind == "unowned" else problem.since
        ranges = alike.setdefault(replace(problem, range=None, since=since), [])
        ranges += [] if problem.range is None else [problem.range]
    return list(alike.items())


def _note(noted: tuple[Problem, Sequence[str]]) -> Text:
    problem, ranges = noted
    owner = "" if problem.owner is None else f" on {problem.owner}"
    since = "" if problem.since is None else f" since {problem.since:%Y-%m-%d %H:%M:%S}"
    about = f"{problem.kind}: {', '.join(ranges)}{owner}{since}" if ranges else problem.kind
    style = "yellow" if problem.kind in ("paused", "unowned") else "red"
    return plain(f"{about}: {problem.message}", style)


def _members(seen: Snapshot) -> Table:
    names = ("member", "ranges", "load", "stamp age", "state", "web", "version", "incarnation")
    owned: dict[str | None, list[LeaseStatus]] = {}
    for lease in seen.leases:
        owned.setdefault(lease.owner, []).append(lease)
    rows = (
        (
            x.name,
            str(len(owned.get(x.name, []))),
            _load_of(owned.get(x.name, [])),
            _seconds(x.stamp_age),
            x.state,
            x.address,
            x.software,
            x.incarnation,
        )
        for x in seen.members
    )
    return a_table(*names, rows=rows)


def _leases(leases: Iterable[LeaseStatus], rates: Mapping[str, float] | None) -> Table:
    names = ("range", "owner", "state", "epoch", "load", "position", "lag", "late", "stamp age")
    if rates is None:
        return a_table(*names, rows=map(_row, leases))
    rows = ((*_row(x), _rate(rates.get(x.range))) for x in leases)
    return a_table(*names, "changes/s", rows=rows)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}"


def _row(x: LeaseStatus) -> Sequence[str]:
    owner = x.owner or ("-" if x.state == "unowned" else "")
    if x.next_owner is not None:
        owner = f"{owner} → {x.next_owner}"
    lag = "" if x.lag is None else f"{x.lag:,}"
    state = ", ".join(dict.fromkeys([x.state, *troubles(x)]))
    age = _seconds(x.stamp_age)
    late = _seconds(x.lag_seconds)
    load = _load_of([x])
    return x.range, owner, state, str(x.epoch), load, x.continuation or "", lag, late, age


def _load_of(leases: Iterable[LeaseStatus]) -> str:
    """Add up what ranges cost their owner, where that is known."""
    loads = [x.load for x in leases if x.load is not None]
    return f"{sum(loads):.2f}" if loads else ""


def _seconds(age: float | None) -> str:
    return "" if age is None else f"{age:.1f} s"

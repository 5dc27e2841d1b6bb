"""What a master does: a role, played by the first in name of the living brokers.

``next_step`` is pure; every step may be repeated, and several masters do no harm: what they
do is decided by the store. An era ends in three steps. (1) The catalog says that it is
ending, and who will have the next. (2) The row of every broker of the era gets its seal:
living brokers write their own, the master ends the others. (3) The catalog closes the
partitions at their ends and opens the next era.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from changefeed.log.brokers.members import Heartbeat, Membership
from changefeed.log.catalog.catalog import Catalog, Era, Row
from changefeed.log.catalog.names import natural_order
from changefeed.log.catalog.transitions import in_order
from changefeed.log.core_settings import CoreSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenFirstEra:
    """There is no era yet."""

    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        assert self.rows, "an era has brokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginEnding:
    """An era is to end; ``planned`` are the rows of the next."""

    era: int
    planned: tuple[Row, ...]

    def __post_init__(self) -> None:
        assert self.planned, f"an era has brokers, also the one after {self.era}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SealRows:
    """These brokers do not end their rows themselves."""

    era: int
    brokers: tuple[str, ...]

    def __post_init__(self) -> None:
        assert self.brokers, f"there is nothing to seal in era {self.era}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseAndOpen:
    """All rows of an era are sealed."""

    era: int


Step = OpenFirstEra | BeginEnding | SealRows | CloseAndOpen


def fields_of(step: Step) -> Mapping[str, object]:
    """Return a step as the fields of a log line."""
    match step:
        case OpenFirstEra(rows=rows):
            return {"step": "open_first_era", "era": 1, "brokers": _brokers(rows)}
        case BeginEnding(era=era, planned=planned):
            return {"step": "begin_ending", "era": era, "next_brokers": _brokers(planned)}
        case SealRows(era=era, brokers=brokers):
            return {"step": "seal_rows", "era": era, "brokers": ", ".join(brokers)}
        case CloseAndOpen(era=era):
            return {"step": "close_and_open", "era": era}


def _brokers(rows: Iterable[Row]) -> str:
    return ", ".join(x.broker for x in rows)


def is_master(name: str, membership: Membership) -> bool:
    return min(membership.living, key=natural_order, default=name) == name


def next_step(
    catalog: Catalog,
    membership: Membership,
    settings: CoreSettings,
    *,
    sealed: AbstractSet[str] = frozenset(),
    ending_for: float = 0.0,
) -> Step | None:
    """Return what a master does next with an era; ``None``: nothing is to be done now.

    ``sealed`` are the brokers whose rows are known to be, and ``ending_for`` the seconds for
    which this master has seen the era ending.
    """
    era = catalog.era
    wanted = _wanted(membership.living)
    settled = membership.quiet_for >= settings.settle or _is_cut_short(era, membership)
    if era is None:
        return OpenFirstEra(rows=wanted) if wanted and settled else None
    if era.state == "open":
        must_end = bool(catalog.reshaping) or _must_end(era, wanted, membership.living)
        if not (wanted and settled and must_end):
            return None
        return BeginEnding(era=era.number, planned=wanted)
    assert sealed <= {x.broker for x in era.rows}, f"{sealed} have no rows in {era.number}"
    unsealed = [x for x in era.rows if x.broker not in sealed]
    if not unsealed:
        return CloseAndOpen(era=era.number)
    overdue = tuple(
        x.broker
        for x in unsealed
        if ending_for >= settings.seal_patience or not _is_alive(x, membership.living)
    )
    return SealRows(era=era.number, brokers=overdue) if overdue else None


def _wanted(living: Mapping[str, Heartbeat]) -> tuple[Row, ...]:
    return in_order(
        Row(broker=x.name, incarnation=x.incarnation, address=x.address)
        for x in living.values()
        if not x.leaving
    )


def _must_end(era: Era, wanted: tuple[Row, ...], living: Mapping[str, Heartbeat]) -> bool:
    there = {(x.broker, x.incarnation) for x in era.rows}
    return {(x.broker, x.incarnation) for x in wanted} != there or any(
        x.lost == era.number for x in living.values()
    )


def _is_cut_short(era: Era | None, membership: Membership) -> bool:
    """Whether partitions have no broker, and waiting is unlikely to show another change."""
    return (
        era is not None
        and membership.steady
        and not all(_is_alive(x, membership.living) for x in era.rows)
    )


def _is_alive(row: Row, living: Mapping[str, Heartbeat]) -> bool:
    heartbeat = living.get(row.broker)
    return heartbeat is not None and heartbeat.incarnation == row.incarnation

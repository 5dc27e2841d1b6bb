"""What a master does: a role, played by the first in name of the living brokers.

``next_step`` is pure; every step may be repeated, and several masters do no harm: what they
do is decided by the store. An era ends in three steps. (1) The catalog says that it is
ending, and who will have the next. (2) The row of every broker of the era gets its seal:
living brokers write their own, the master ends the others. (3) The catalog closes the
partitions at their ends and opens the next era.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Literal

from changefeed.log.brokers.members import Heartbeat, Membership
from changefeed.log.catalog.catalog import Catalog, Era, Row
from changefeed.log.catalog.names import natural_order
from changefeed.log.catalog.transitions import in_order
from changefeed.log.core_settings import CoreSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What to do with an era.

    ``rows`` are those of the first era or of the next; or those of ``era`` that their brokers
    do not end themselves.
    """

    name: Literal["open_first_era", "begin_ending", "seal_rows", "close_and_open"]
    era: int = 1
    rows: tuple[Row, ...] = ()

    def __post_init__(self) -> None:
        assert bool(self.rows) != (self.name == "close_and_open"), f"which rows? {self}"

    @property
    def brokers(self) -> Sequence[str]:
        return [x.broker for x in self.rows]


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
        return Step(name="open_first_era", rows=wanted) if wanted and settled else None
    if era.state == "open":
        must_end = bool(catalog.reshaping) or _must_end(era, wanted, membership.living)
        if not (wanted and settled and must_end):
            return None
        return Step(name="begin_ending", era=era.number, rows=wanted)
    assert sealed <= {x.broker for x in era.rows}, f"{sealed} have no rows in {era.number}"
    unsealed = [x for x in era.rows if x.broker not in sealed]
    if not unsealed:
        return Step(name="close_and_open", era=era.number)
    overdue = tuple(
        x
        for x in unsealed
        if ending_for >= settings.seal_patience or not _is_alive(x, membership.living)
    )
    return Step(name="seal_rows", era=era.number, rows=overdue) if overdue else None


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

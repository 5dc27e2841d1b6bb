"""Where the records of each partition lie in the newest objects of a row. Pure."""

from bisect import bisect_right
from typing import Final, NamedTuple

from changefeed.feeds.brokers.flush import FlushHeader, Key

MAX_SECTIONS: Final = 500_000
"""What is known of each takes a hundred bytes."""


class _Spot(NamedTuple):
    number: int
    last: int


class RecentSections:
    """Knows all sections of the objects from ``since`` on that were added."""

    def __init__(self) -> None:
        self.since = 1
        self._spots: dict[Key, list[_Spot]] = {}
        self._sections = 0

    def begin(self, number: int) -> None:
        """Forget what was added: the next object to be added is this one."""
        self._spots.clear()
        self.since, self._sections = number, 0

    def add(self, header: FlushHeader, most: int) -> None:
        """Take in the next object; forget the oldest where there are twice ``most``.

        Fewer are kept where they have many sections: a half of ``MAX_SECTIONS`` or more.
        """
        assert header.number >= self.since, f"{header.number} is before {self.since}"
        for section in header.sections:
            spots = self._spots.setdefault((section.collection, section.partition), [])
            assert not spots or spots[-1].number < header.number, (
                f"object {header.number} comes after {spots[-1].number}"
            )
            spots.append(_Spot(header.number, section.last))
        self._sections += len(header.sections)
        there = header.number - self.since
        if there > 2 * most or self._sections > MAX_SECTIONS:
            self._forget_before(header.number - min(most, there // 2))

    def _forget_before(self, number: int) -> None:
        self.since, self._sections = number, 0
        for spots in self._spots.values():
            del spots[: bisect_right(spots, (number - 1, 2**63))]
            self._sections += len(spots)

    def has_all_after(self, key: Key, after: int) -> bool:
        """Whether all records of a partition after a sequence lie here, or are to come."""
        spots = self._spots.get(key, [])
        return bool(spots) and after >= spots[0].last

    def first_beyond(self, key: Key, after: int, number: int = 0) -> int | None:
        """Return the first object, from one on, that has records after a sequence."""
        spots = self._spots.get(key, [])
        place = bisect_right(spots, after, key=lambda x: x.last)
        while place < len(spots) and spots[place].number < number:
            place += 1
        return spots[place].number if place < len(spots) else None

"""Dates in queries: text in ISO 8601, milliseconds, or ticks of 100 ns, since 1970 in UTC.

What is no date, or no part of one, makes a function undefined, as in Cosmos DB. All is
counted in ticks; a year and a month have no fixed number of them, and are counted by the
calendar. Dates lie between the years 1 and 9999.
"""

import calendar
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cosmos_emulator.json_values import UNDEFINED

_TICKS: Final = 10_000_000  # in a second
_PER_DAY: Final = 86_400 * _TICKS
_DATE = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)(?:T(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,7}))?)?Z?)?", re.ASCII
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS: Final = 12
_LAST_YEAR: Final = 9999
_PARTS: Final[dict[str, str]] = {
    spelling: spellings.split()[0]
    for spellings in (
        "year yyyy yy",
        "month mm m",
        "day dd d",
        "hour hh",
        "minute mi n",
        "second ss s",
        "millisecond ms",
        "microsecond mcs",
        "nanosecond ns",
    )
    for spelling in spellings.split()
}
_UNITS: Final[dict[str, int]] = {
    "day": _PER_DAY,
    "hour": 3600 * _TICKS,
    "minute": 60 * _TICKS,
    "second": _TICKS,
    "millisecond": _TICKS // 1000,
    "microsecond": _TICKS // 1_000_000,
}
"""How many ticks each part has; a nanosecond is less than one."""


def ticks_of(text: str) -> int:
    """Read a date; ``ValueError`` if it is none."""
    found = _DATE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    *whole, fraction = found.groups("0")
    year, month, day, hour, minute, second = map(int, whole)
    date = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    return (date - _EPOCH) // timedelta(seconds=1) * _TICKS + int(fraction.ljust(7, "0"))


def text_of(ticks: int) -> str:
    """Write a date; ``ValueError`` or ``OverflowError`` beyond the year 9999."""
    seconds, rest = divmod(ticks, _TICKS)
    date = _EPOCH + timedelta(seconds=seconds)
    return f"{date:%Y-%m-%dT%H:%M:%S}.{rest:07}Z".rjust(28, "0")


def added(part: str, count: float, date: str) -> Any:
    """``DATETIMEADD``. A day that a month does not have becomes its last one."""
    name, ticks, number = _PARTS[part.lower()], ticks_of(date), int(count)
    if name == "year":
        return text_of(_moved(ticks, number * _MONTHS))
    if name == "month":
        return text_of(_moved(ticks, number))
    if name == "nanosecond":
        return text_of(ticks + number // 100)
    return text_of(ticks + number * _UNITS[name])


def difference(part: str, start: str, end: str) -> Any:
    """``DATETIMEDIFF``: how many boundaries of the part lie between, not whole parts."""
    name, first, last = _PARTS[part.lower()], ticks_of(start), ticks_of(end)
    if name == "year":
        return _date(last).year - _date(first).year
    if name == "month":
        return _month(last) - _month(first)
    if name == "nanosecond":
        return (last - first) * 100
    return last // _UNITS[name] - first // _UNITS[name]


def binned(date: str, part: str, size: float = 1, start: str = "1970-01-01") -> Any:
    """``DATETIMEBIN``: the last multiple of a size, counted from a start."""
    name, ticks, origin = _PARTS[part.lower()], ticks_of(date), ticks_of(start)
    if name in {"year", "month"} or size < 1:
        return UNDEFINED
    width = int(size) // 100 or 1 if name == "nanosecond" else int(size) * _UNITS[name]
    return text_of(origin + (ticks - origin) // width * width)


def part_of(part: str, date: str) -> Any:
    """``DATETIMEPART``. Below a second: all of the fraction, in that unit."""
    name, ticks = _PARTS[part.lower()], ticks_of(date)
    fraction = ticks % _TICKS
    match name:
        case "millisecond" | "microsecond":
            return fraction // _UNITS[name]
        case "nanosecond":
            return fraction * 100
        case _:
            return getattr(_date(ticks), name)


def from_parts(year: float, month: float, day: float, *rest: float) -> Any:
    """``DATETIMEFROMPARTS``; the last one is a fraction in ticks."""
    hour, minute, second, fraction = [int(x) for x in (*rest, *[0] * (4 - len(rest)))]
    if not 0 <= fraction < _TICKS:
        return UNDEFINED
    date = datetime(int(year), int(month), int(day), hour, minute, second, tzinfo=UTC)
    return text_of((date - _EPOCH) // timedelta(seconds=1) * _TICKS + fraction)


def timestamp_of(date: str) -> int:
    return ticks_of(date) // _UNITS["millisecond"]


def from_timestamp(milliseconds: float) -> str:
    return text_of(int(milliseconds) * _UNITS["millisecond"])


def from_ticks(ticks: float) -> str:
    return text_of(int(ticks))


CURRENT: Final[dict[str, Callable[[float], Any]]] = {
    "GETCURRENTDATETIME": lambda now: text_of(int(now * _TICKS)),
    "GETCURRENTTIMESTAMP": lambda now: int(now * 1000),
    "GETCURRENTTICKS": lambda now: int(now * _TICKS),
}
"""The functions of the time of day, given in seconds since 1970."""


def _date(ticks: int) -> datetime:
    return _EPOCH + timedelta(seconds=ticks // _TICKS)


def _month(ticks: int) -> int:
    date = _date(ticks)
    return date.year * _MONTHS + date.month


def _moved(ticks: int, months: int) -> int:
    date = _date(ticks)
    year, month = divmod(date.year * _MONTHS + date.month - 1 + months, _MONTHS)
    if not 1 <= year <= _LAST_YEAR:
        raise ValueError(year)
    day = min(date.day, calendar.monthrange(year, month + 1)[1])
    moved = date.replace(year=year, month=month + 1, day=day)
    return (moved - _EPOCH) // timedelta(seconds=1) * _TICKS + ticks % _TICKS

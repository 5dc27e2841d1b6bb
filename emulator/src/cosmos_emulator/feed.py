"""The change feed of one range, in both of its modes.

Latest version: every item once, at the LSN of its newest version; deleted items are not
in it. All versions and deletes: the log, with the image before each change; the log is
kept for ever.

A continuation is the LSN behind which to go on, in quotes, as an etag. A page ends at the
wanted number of items or at 4 MB, but never inside a transaction, so it may hold a few
more. Where there is nothing to read the answer is 304, with an etag all the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from cosmos_emulator.errors import bad_request
from cosmos_emulator.hashing import HIGHEST, LOWEST
from cosmos_emulator.ranges import PhysicalRange
from cosmos_emulator.store import Store

_LARGEST_PAGE: Final = 4 * 1024 * 1024
_MAX_LSN: Final = 18  # digits: what SQLite can compare
_LATEST: Final = (
    "SELECT lsn, body, ts FROM items "
    "WHERE pid = ? AND lsn > ? AND epk >= ? AND epk < ? AND ts >= ? ORDER BY lsn, seq"
)
_ALL: Final = (
    "SELECT log.lsn, log.body, log.operation, log.id, log.pk, log.crts, log.expired, "
    "before.lsn, before.body FROM log LEFT JOIN log AS before ON before.seq = log.previous "
    "WHERE log.pid = ? AND log.lsn > ? AND log.epk >= ? AND log.epk < ? "
    "ORDER BY log.lsn, log.seq"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRequest:
    """What of a range to read: hashes in [low, high), behind ``after``, since ``since``.

    ``since`` is in whole seconds and includes its own second: too early is a repetition,
    too late would be a loss.
    """

    after: int
    limit: int
    all_versions: bool = False
    with_metadata: bool = False  # the wire format of 2021, also for latest versions
    since: int = 0
    low: str = LOWEST
    high: str = HIGHEST


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPage:
    """Entries as JSON text, and the LSN up to which the reader now has everything."""

    entries: list[bytes]
    lsn: int

    @property
    def etag(self) -> str:
        return f'"{self.lsn}"'


def position(if_none_match: str | None, lsn: int) -> int:
    """Return the LSN behind which a reader goes on: nothing, ``*`` for now, or an etag."""
    if if_none_match is None:
        return 0
    text = if_none_match.strip().strip('"')
    if text == "*":
        return lsn
    if not text.isdecimal() or len(text) > _MAX_LSN:
        raise bad_request(
            f"If-None-Match of a change feed is * or an etag that it gave, such as "
            f'"42"; it is {if_none_match!r}.'
        )
    return int(text)


def point_in_time(if_modified_since: str | None) -> int:
    """Return the whole seconds since 1970 of a date in a header, or zero."""
    if if_modified_since is None:
        return 0
    try:
        return int(parsedate_to_datetime(if_modified_since).timestamp())
    except (ValueError, OverflowError) as error:
        raise bad_request(
            f"If-Modified-Since must be an RFC 1123 date; it is {if_modified_since!r}."
        ) from error


def read_page(
    store: Store, held: PhysicalRange, request: FeedRequest, paths: Sequence[str]
) -> FeedPage:
    """Read one page of a range. No entries means that its end was reached for now."""
    found = (
        _all_versions(store, held, request, paths)
        if request.all_versions
        else _latest_versions(store, held, request)
    )
    entries: list[bytes] = []
    size, last = 0, 0
    for lsn, entry in found:
        if lsn != last and (len(entries) >= request.limit or size >= _LARGEST_PAGE):
            break
        entries.append(entry)
        size, last = size + len(entry), lsn
    end = last if entries else max(held.lsn, request.after)
    return FeedPage(entries=entries, lsn=end)


def _latest_versions(
    store: Store, held: PhysicalRange, request: FeedRequest
) -> Iterator[tuple[int, bytes]]:
    values = (held.pid, request.after, request.low, request.high, request.since)
    for lsn, body, written in store.rows(_LATEST, values):
        entry = _with_lsn(body, lsn)
        if request.with_metadata:
            entry = b'{"current":%b,"metadata":{"lsn":%d,"crts":%d}}' % (entry, lsn, written)
        yield lsn, entry


def _all_versions(
    store: Store, held: PhysicalRange, request: FeedRequest, paths: Sequence[str]
) -> Iterator[tuple[int, bytes]]:
    values = (held.pid, request.after, request.low, request.high)
    names = [x.strip("/") for x in paths]
    for row in store.rows(_ALL, values):
        lsn, body, operation, item, key, crts, expired, before_lsn, before = row
        metadata: dict[str, Any] = {
            "operationType": operation,
            "lsn": lsn,
            "crts": crts,
            "id": item,
            "partitionKey": dict(zip(names, msgspec.json.decode(key), strict=True)),
        }
        if before_lsn is not None:
            metadata["previousImageLSN"] = before_lsn
        if operation == "delete":
            metadata["timeToLiveExpired"] = bool(expired)
        parts = [b'{"current":', b"{}" if body is None else _with_lsn(body, lsn)]
        if before is not None:
            parts += [b',"previous":', _with_lsn(before, before_lsn)]
        yield lsn, b"".join([*parts, b',"metadata":', msgspec.json.encode(metadata), b"}"])


def _with_lsn(body: bytes, lsn: int) -> bytes:
    return body[:-1] + b',"_lsn":%d}' % lsn

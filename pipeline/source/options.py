"""What a user may say to the source, as Spark options: text by names in any case."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from pyspark.sql import datasource

from changefeed.feeds.cosmos.address import AddressWrong, CosmosAccess
from changefeed.feeds.feed import RangeId, StartAt
from changefeed.feeds.starts import start_in
from changefeed.pipeline.source.addresses import (
    absolute,
    open_access,
    require_account,
    with_mode,
    with_share,
)
from changefeed.pipeline.source.byte_limit import ByteLimit
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.reader import Access, Slice
from changefeed.pipeline.source.record_batches import Envelope
from changefeed.runtime.errors import UserError
from changefeed.runtime.quantities import seconds
from changefeed.runtime.secret import Secret

CREDENTIALS: Final = {
    "accessKey": "key",
    "token": "token",
    "tenantId": "tenant_id",
    "clientId": "client_id",
    "clientSecret": "client_secret",
    "secretCertificate": "client_certificate",
}
"""What opens an account of Cosmos DB, by the fields of ``CosmosAccess``.

Spark shows the options of a source in plans. It hides those whose names say that they are
secret, by a pattern of its own (``spark.redaction.regex``): so the names are these.
"""

SHARES: Final = {
    "maxRUPerSecond": "max_ru",
    "priority": "priority",
    "throughputBucket": "throughput_bucket",
}
"""What a query may take of its account, by the names in an address."""

_KNOWN: Final = (
    "feed",
    "startingAt",
    "endingAt",
    "initialSnapshot",
    "mode",
    "ranges",
    "columns",
    "pushFilters",
    "maxChangesPerBatch",
    "maxBytesPerBatch",
    *SHARES,
    "sliceChanges",
    "pollInterval",
    "holdFile",
    "slices",
    *CREDENTIALS,
)
_SLICE: Final = 100_000
_POLL_INTERVAL: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """``feed`` is an address. ``starting_at`` counts for a query without a checkpoint, as do
    ``ranges``: the only ones to read, with what descends from them; all, if empty.
    ``ending_at`` is for reading in batches. A range with more than ``slice_changes`` in a batch
    is read by several tasks, where the feed allows that. ``push_filters``: see ``filters``. A
    stream that finds nothing asks
    again after ``poll_interval`` seconds at the earliest. See ``holding`` for ``hold_file``.
    ``slices`` are what to read in a batch, in the place of what lies between two points.
    ``cosmos`` opens the account; without it, the environment of each process says what does.
    """

    feed: str
    starting_at: StartAt | Offset = "beginning"
    ending_at: StartAt | Offset = "now"
    ranges: tuple[RangeId, ...] = ()
    envelope: Envelope = field(default_factory=Envelope)
    push_filters: bool = False
    max_changes: int | None = None
    max_bytes: int | None = None
    slice_changes: int = _SLICE
    poll_interval: float = _POLL_INTERVAL
    hold_file: str | None = None
    slices: tuple[Slice, ...] | None = None
    cosmos: CosmosAccess | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "Options":
        """Read options. Raise ``UserError`` for a wrong one or one there is not."""
        options = {name.lower(): value for name, value in given.items()}
        if "bodyschema" in options:
            raise UserError(
                "Spark does not parse for a source that is written in Python: leave bodySchema "
                "out, and parse what was loaded, with "
                "changefeed.pipeline.source.body_schema.with_bodies"
                f"(changes, {options['bodyschema']!r})"
            )
        require_known(options, _KNOWN, example="eventlog:DIRECTORY")
        columns = options.get("columns")
        return cls(
            feed=address_of(options),
            starting_at=_start(options),
            ending_at=point(options.get("endingat", "now"), "endingAt"),
            ranges=_names(options.get("ranges")),
            envelope=Envelope() if columns is None else Envelope.of(columns),
            push_filters=pushes_filters(options),
            max_changes=_whole(options.get("maxchangesperbatch"), "maxChangesPerBatch"),
            max_bytes=_whole(options.get("maxbytesperbatch"), "maxBytesPerBatch"),
            slice_changes=_whole(options.get("slicechanges"), "sliceChanges") or _SLICE,
            poll_interval=_seconds(options.get("pollinterval"), "pollInterval"),
            hold_file=options.get("holdfile"),
            slices=None if "slices" not in options else slices_from_text(options["slices"]),
            cosmos=credentials_of(options),
        )

    @property
    def bytes_limit(self) -> ByteLimit | None:
        most = self.max_bytes
        return None if most is None else ByteLimit(most=most, envelope=self.envelope)

    def opened(self) -> Access:
        """Return access to the feed; the caller closes it. Raise what opening it raises."""
        return open_access(self.feed, self.ranges, cosmos=self.cosmos)


def require_known(options: Mapping[str, str], known: Sequence[str], *, example: str) -> None:
    """Raise ``UserError`` for an option that there is not, and where no feed is said."""
    unknown = sorted(options.keys() - {x.lower() for x in known})
    if unknown:
        raise UserError(
            f"the source has no option {unknown[0]!r}. Known options: {', '.join(known)}"
        )
    if not options.get("feed"):
        raise UserError(f"say which feed: .option('feed', '{example}')")


def slices_from_text(text: str) -> tuple[Slice, ...]:
    """Read slices as ``slices_text`` wrote them."""
    return msgspec.json.decode(text, type=tuple[Slice, ...])


def slices_text(slices: Sequence[Slice]) -> str:
    return msgspec.json.encode(slices).decode()


def point(text: str, name: str) -> StartAt | Offset:
    """Read a point in a feed: a word, a time with its zone, or an offset as JSON."""
    if text.startswith("{"):
        return Offset.of(text)
    try:
        start = start_in(text)
    except ValueError as error:
        raise UserError(f"{name}={text!r}: {error}") from error
    if start is None:
        raise UserError(
            f"{name}={text!r}: write beginning, now, snapshot, a time as "
            f"2026-01-31T12:00:00+00:00, or an offset as JSON"
        )
    return start


def _start(options: Mapping[str, str]) -> StartAt | Offset:
    """``initialSnapshot`` says with a word of its own what ``startingAt`` could say."""
    if not yes(options, "initialSnapshot"):
        return point(options.get("startingat", "beginning"), "startingAt")
    if options.get("startingat", "snapshot") != "snapshot":
        raise UserError(
            f"initialSnapshot=true, but startingAt={options['startingat']!r}: say one of them"
        )
    return "snapshot"


def address_of(options: Mapping[str, str]) -> str:
    """Say in the address all that the feed is opened with.

    Spark's Python processes may have another working directory than the user.
    """
    address = options["feed"]
    if "mode" in options:
        address = with_mode(address, options["mode"])
    for said, name in SHARES.items():
        if (value := options.get(said.lower())) is not None:
            address = with_share(address, name, value, said=said)
    return absolute(address)


def credentials_of(options: Mapping[str, str]) -> CosmosAccess | None:
    """Return what the options say that opens the account, if they say it."""
    given = {ours: options.get(name.lower()) for name, ours in CREDENTIALS.items()}
    if not any(given.values()):
        return None

    def secret(ours: str) -> Secret | None:
        text = given[ours]
        return Secret.of(text) if text else None

    require_account(options["feed"], next(x for x, y in CREDENTIALS.items() if given[y]))
    access = CosmosAccess.by_name(secret, given.get)
    try:
        access.check()
    except AddressWrong as error:
        raise UserError(_by_options(str(error))) from error
    return access


def _by_options(text: str) -> str:
    """Name options where a text names what they set."""
    for name, ours in CREDENTIALS.items():
        text = re.sub(rf"\b{ours}\b", name, text)
    return text


def yes(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name.lower(), "false").lower()
    if text not in ("true", "false"):
        raise UserError(f"{name}={text!r}: write true or false")
    return text == "true"


def pushes_filters(options: Mapping[str, str]) -> bool:
    """Return whether Spark is to push filters. Raise ``UserError`` where it cannot."""
    wanted = yes(options, "pushFilters")
    if wanted and not hasattr(datasource, "Filter"):
        raise UserError(
            "pushFilters=true: Spark before 4.1 pushes no filters. Leave it out, and filter "
            "what was loaded"
        )
    return wanted


def _names(text: str | None) -> tuple[RangeId, ...]:
    if text is None:
        return ()
    names = tuple(RangeId(x.strip()) for x in text.split(",") if x.strip())
    if not names:
        raise UserError(f"ranges={text!r}: name ranges, with commas between them")
    return names


def _whole(text: str | None, name: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UserError(f"{name}={text!r}: write a whole number from 1 on")
    return int(text)


def _seconds(text: str | None, name: str) -> float:
    try:
        return _POLL_INTERVAL if text is None else seconds(text)
    except ValueError as error:
        raise UserError(f"{name}: {error}") from error

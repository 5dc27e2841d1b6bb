"""The settings: one frozen object for each section, checked once, from three places.

A value is taken from the first place that has it: the command line, the environment
(``CHANGEFEED_LEASES__EXPIRATION=20``), the TOML file, the default below. All times are
in seconds.
"""

import socket
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    model_validator,
)

from changefeed.feeds.backend import OpenOptions
from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.feeds.starts import not_in_future, start_in
from changefeed.leases.timing import Timing
from changefeed.observers.settings import RetrySettings
from changefeed.observers.trace_context import TraceContextPointer
from changefeed.runtime.errors import UserError
from changefeed.runtime.paths import absolute
from changefeed.runtime.secret_settings import HasSecrets
from changefeed.runtime.settings import (
    MAX_NUMBER,
    AllSettings,
    LogSettings,
    Place,
    Seconds,
    SecondsOrZero,
    Section,
    read_processors,
)
from changefeed.stores.addresses import shared_place

_MIN_TOKEN = 16


class HostSettings(Section):
    """The process."""

    name: str = Field(default_factory=socket.gethostname, min_length=1)
    """Stable across restarts, and different for each host of the fleet."""
    stop_timeout: Seconds = 25.0
    """How long a stop may take, observers included; less than what kills the process."""


def _start_in(given: object) -> object:
    """Take words, text with a zone and times. A number would be seconds since 1970, and is
    rather a year.
    """
    if isinstance(given, datetime):
        return not_in_future(given)
    start = start_in(given) if isinstance(given, str) else None
    if start is None:
        raise ValueError(
            "should be beginning, now, snapshot, or a time with its zone, as "
            "2026-01-31T12:00Z or 2026-01-31T13:00+01:00"
        )
    return start


class FeedSettings(Section):
    """Where changes come from."""

    address: Place = "eventlog:data/log"
    """``eventlog:DIRECTORY`` or ``cosmos://HOST/DATABASE/CONTAINER``."""
    start: Annotated[
        Literal["beginning", "now", "snapshot"] | datetime, BeforeValidator(_start_in)
    ] = "beginning"
    """Where the fleet starts: beginning, now, or a time with its zone, not in the future; or
    snapshot (Cosmos DB, all versions): the latest version of every item, then every version.
    The first host settles it for all. A range whose lease was deleted starts there again."""
    poll_interval: Seconds = 1.0
    """How long to wait at the end of a range before asking for more. Where the feed has to be
    asked range by range (Cosmos DB), up to five times as long for one that stays idle."""
    page_size: int = Field(default=1000, ge=1, le=1_000_000)
    """About how many changes to read, and to hand to the observer, at once."""
    batch_wait: SecondsOrZero = 0.0
    """How long to collect changes of a range, up to ``page_size``, before the observer is
    called with them. Each change comes so much later, and an observer that pays by the call
    pays less. 0 hands over what there is."""
    parallelism: int = Field(default=1, ge=1, le=4096)
    """How many ranges to read at least. The first leases of a feed with fewer (in Cosmos DB
    or an event log, also of a cluster) are of parts of its ranges; later,
    ``changefeed range split`` makes more. Alike on all hosts."""


class LeaseSettings(Section):
    """Where leases are kept, and how they live and die."""

    address: Place = "sqlite:data/leases.db"
    """``sqlite:FILE``, ``cosmos://HOST/DATABASE/CONTAINER``, ``postgresql://HOST/DATABASE``,
    ``redis://HOST`` or ``blob://ACCOUNT/CONTAINER/PREFIX``: leases and checkpoints
    together, or ownership alone."""
    create: bool = False
    """Create the container (Cosmos DB, Blob) or the tables (PostgreSQL) if there are none."""
    checkpoints: Place | None = None
    """Another store for the checkpoints: ``address`` then keeps ownership alone."""
    expiration: Seconds = 30.0
    """A host that shows no sign of life for this long loses its leases. All hosts go by what
    the one that was started last says, so a rolling deployment changes it."""
    balance: Literal["count", "load", "split"] = "count"
    """What hosts share: ranges, by their number (``count``); or the work, by what each range
    costs its owner (``load``). With ``split``, a range that alone is more than a host's fair
    share of the work is split as well, if the feed reads parts of ranges: at a checkpoint, one
    lease of a range of the feed in twice ``expiration``, up to two parts for each host. All
    hosts go by what the one that was started last says; beside a processor of another kind,
    by number."""
    max_ranges: int | None = Field(default=None, ge=1)
    """By load: how many ranges this host takes at most. What no host of the fleet takes is
    not read."""
    max_handoff_time: SecondsOrZero = 30.0
    """How long the owner of a lease that another host asks for may finish what it has in
    hand. 0 steals at once, and what was in hand is delivered again."""
    _timing: Timing | None = PrivateAttr(default=None)

    @property
    def addresses(self) -> tuple[str] | tuple[str, str]:
        """Where leases lie: all of them, or ownership and checkpoints."""
        return (self.address,) if self.checkpoints is None else (self.address, self.checkpoints)

    @property
    def timing(self) -> Timing:
        """When hosts do what, as it follows from ``expiration``."""
        return self._timing or Timing.of(self.expiration)

    def with_timing(self, **changes: float) -> Self:
        """Return the settings of a host that does some things more or less often. For tests."""
        changed = self.model_copy()
        changed._timing = replace(self.timing, **changes)  # noqa: SLF001 - of this class
        return changed

    @property
    def longest_handoff(self) -> float:
        """An owner loses a lease that it was asked for when it is as late as a dead one."""
        return self.max_handoff_time + self.expiration


class ObserverSettings(Section):
    """What happens to changes."""

    name: str | None = None
    """``module:Class``, a registered name, or an entry point (log, jsonl, count)."""
    options: dict[str, Any] = Field(default_factory=dict)
    """Arguments for the observer's constructor."""
    checkpoint: Literal["batch", "manual"] | Seconds = "batch"
    """When positions are written: after each batch (``batch``), every so many seconds, or only
    when the observer says so (``manual``)."""
    max_unacknowledged: int = Field(default=10_000, ge=1, le=MAX_NUMBER)
    """How many changes of a range may be read and not yet be checkpointed, those of keys that
    wait among them: what a crash repeats at most. No batch is larger."""
    ordering: Literal["key", "range"] = "key"
    """What has to be handled in order: the changes of each key, so that one that fails holds up
    its key; or all changes of a range, so that it holds up the range."""
    concurrency: int = Field(default=1, ge=1, le=10_000)
    """How many calls of observers of one range to make at once, each with other keys: so many
    observers are made for each range."""
    timeout: Seconds | None = None
    """How long the observer may take for one batch (or to open) before the attempt counts
    as failed. A plain function that does not end even then stops the host."""
    retry: RetrySettings = RetrySettings.defaults()
    on_failure: Literal["retry", "dead-letter", "stop-range"] = "retry"
    """What becomes of a change that fails again and again where others succeed: its key waits
    for ever; or it is put to the dead letters, and its key goes on; or the range is paused, for
    all hosts, until it is resumed."""
    trace_context: str | None = None
    """Where the body of a change says the trace that it belongs to, as a JSON pointer: to a
    ``traceparent``, or to an object that has one. With traces on, the span of a batch has
    links there."""
    dead_letters: Place = "sqlite:data/dead-letters.db"
    """Where failed changes are put aside: ``sqlite:FILE`` or ``jsonl:FILE`` on one machine;
    for all hosts, any other address that leases can have (``postgresql://``, ``cosmos://``)."""

    @model_validator(mode="after")
    def _order_calls(self) -> Self:
        if self.ordering == "range" and self.concurrency > 1:
            raise ValueError(
                "in the order of the range there is one call at once: set concurrency to 1, or "
                "ordering to key"
            )
        return self

    @model_validator(mode="after")
    def _point_into_bodies(self) -> Self:
        if self.trace_context is not None:
            TraceContextPointer(self.trace_context)
        return self


class WebSettings(HasSecrets, Section):
    """Liveness, readiness, metrics and leases over HTTP, and a page that shows the fleet."""

    bind: str = "127.0.0.1"
    port: Literal["off"] | Annotated[int, Field(ge=0, le=65535)] = 0
    """0 takes any free port; the log and ``changefeed status`` show which. With ``off`` there
    is no server."""
    token: SecretStr | None = Field(default=None, min_length=_MIN_TOKEN)
    """Whoever has it can act from the page: pause, resume, release, reset, replay, discard.
    Without one, the page can only be looked at. Set it in the environment, or in a file."""
    pipelines: list[str] = Field(default_factory=list)
    """Where pipelines answer, as ``http://HOST:PORT``: the page shows them beside the hosts."""

    @property
    def secret(self) -> str | None:
        """The token. Raise ``UserError`` for a file without one, or with a short one."""
        secret = self.secret_of("token")
        token = None if secret is None else secret.current()
        if token is not None and len(token) < _MIN_TOKEN:
            raise UserError(
                f"the token in {self.file_of('token')} is too short (web.token_file): "
                f"{_MIN_TOKEN} characters or more"
            )
        return token


class CosmosSettings(HasSecrets, Section):
    """What opens Cosmos DB accounts: one of the secrets, or none for the identity of the
    process in Azure. Better set in the environment, or kept in a file of their own, than
    written into a file of settings."""

    # A key of digits alone would otherwise be refused, and shown with the refusal.
    model_config = ConfigDict(coerce_numbers_to_str=True)

    key: SecretStr | None = None
    """Or a connection string, which may say where the account is, for addresses like
    ``cosmos:///DATABASE/CONTAINER``."""
    token: SecretStr | None = None
    """A token of Entra ID. To renew it, write it into the file of ``token_file``."""
    tenant_id: str | None = None
    """The tenant of a service principal."""
    client_id: str | None = None
    """The service principal; or, without a secret, a managed identity that a user has made."""
    client_secret: SecretStr | None = None
    client_certificate: SecretStr | None = None
    """PEM, with the private key."""

    @property
    def access(self) -> CosmosAccess:
        """The secrets. Raise ``UserError`` for a file that cannot be read."""
        return CosmosAccess.by_name(self.secret_of, lambda x: getattr(self, x))


def _with_absolute_files(section: dict[str, Any]) -> dict[str, Any]:
    """A backend reads its section when it is opened, and its files again after that."""
    return {
        name: str(absolute(given)) if name.endswith("_file") and given else given
        for name, given in section.items()
    }


class BackendsSettings(Section):
    """Settings of the backends that other packages bring, each under its own name:
    ``[backends.NAME]``, or ``CHANGEFEED_BACKENDS__NAME__KEY``. Their own pages say which."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[
        str, Annotated[dict[str, Any], AfterValidator(_with_absolute_files)]
    ] = Field(init=False)

    @property
    def sections(self) -> Mapping[str, Mapping[str, Any]]:
        return self.__pydantic_extra__


class Settings(AllSettings):
    """Everything that can be set for a host."""

    prefix = "CHANGEFEED_"
    init_command = "changefeed config host"
    foreign_sections = ("pipeline", "config", "started_as")
    of_processors = ("feed", "leases", "observer", "cosmos", "backends")

    host: HostSettings = HostSettings.defaults()
    feed: FeedSettings = FeedSettings.defaults()
    leases: LeaseSettings = LeaseSettings.defaults()
    observer: ObserverSettings = ObserverSettings.defaults()
    cosmos: CosmosSettings = CosmosSettings.defaults()
    backends: BackendsSettings = BackendsSettings.defaults()
    web: WebSettings = WebSettings.defaults()
    log: LogSettings = LogSettings.defaults()

    @property
    def open_options(self) -> OpenOptions:
        """What the feed and the lease container of these settings are opened with."""
        return OpenOptions(
            cosmos=self.cosmos.access,
            create=self.leases.create,
            backends=self.backends.sections,
        )


def load_processors(
    file: Path | None, flags: Mapping[str, Any], only: Collection[str] = ()
) -> Mapping[str, Settings]:
    """Merge a TOML file, the environment and nested ``flags`` into the settings of each
    processor by its name, or of ``only`` some. Where there is no ``[processors.NAME]``, there
    is one processor, and its name is empty.

    Raise ``UserError``, which names each setting that is wrong, for a processor that there is
    not, and for two that keep their leases in one place.
    """
    found = read_processors(Settings, file, flags)
    known = ", ".join(filter(None, found))
    if unknown := sorted({*only} - found.keys()):
        raise UserError(
            f"there is no processor {unknown[0]!r}. "
            + (f"The settings have {known}" if known else "The settings have no [processors]")
        )
    _refuse_shared_leases(found)
    return {name: x for name, x in found.items() if not only or name in only}


def load_settings(
    file: Path | None, flags: Mapping[str, Any], only: Collection[str] = ()
) -> Settings:
    """Return the settings of the only processor, or of the one that ``only`` names; see
    ``load_processors``. Raise ``UserError`` where there are several.
    """
    found = load_processors(file, flags, only)
    if len(found) > 1:
        raise UserError(
            f"the settings have several processors: choose one with --processor: "
            f"{', '.join(found)}"
        )
    return next(iter(found.values()))


def settings_of_process(processors: Mapping[str, Settings]) -> Settings:
    """Return settings of which ``host``, ``web`` and ``log`` are the same for all."""
    return next(iter(processors.values()))


def _refuse_shared_leases(processors: Mapping[str, Settings]) -> None:
    """Each would take the other's leases for its own."""
    kept = dict[str, str]()
    for name, settings in processors.items() if len(processors) > 1 else ():
        for address in map(shared_place, settings.leases.addresses):
            other = kept.setdefault(address, name)
            if other != name and not address.startswith("memory:"):
                raise UserError(
                    f"processors {other} and {name} keep their leases in one place, {address}: "
                    f"set [processors.{name}.leases] address to one of its own, as another "
                    f"file, or the same store with another fleet or prefix"
                )

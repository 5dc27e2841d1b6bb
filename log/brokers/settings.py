"""The settings of a broker."""

import socket
import ssl
from collections.abc import Mapping
from functools import partial
from math import inf
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from changefeed.feeds.errors import FeedRefused
from changefeed.log.client.address import PLAIN, broker_urls
from changefeed.log.core_settings import CoreSettings
from changefeed.runtime.errors import UserError
from changefeed.runtime.secret import FileValue, Secret
from changefeed.runtime.secret_settings import HasSecrets
from changefeed.runtime.settings import (
    AllSettings,
    Bytes,
    LogSettings,
    Seconds,
    Section,
    read_settings,
)
from changefeed.runtime.tls import ServedCertificate

_PUTS = 5.0
"""Objects in a second, where each costs a request: about $65 a month for each busy broker."""
_HEARTBEATS = 10
"""Within an expiration."""


class BrokerSection(Section):
    """The process, and the cluster it belongs to."""

    name: str = Field(default_factory=lambda: socket.gethostname().lower(), min_length=1)
    """Stable across restarts, and different for each broker of the cluster."""
    cluster: str = Field(default="", examples=["file:///data/cluster"])
    """Where the cluster lies: ``file:///DIRECTORY`` for brokers of one machine,
    ``s3://BUCKET/PREFIX``, ``az://CONTAINER/PREFIX`` or ``gs://BUCKET/PREFIX``."""
    stop_timeout: Seconds = 25.0
    """How long a stop may take: others take over the partitions first."""


class WebSection(HasSecrets, Section):
    """Where producers, readers, commands and probes reach it."""

    bind: str = "127.0.0.1"
    port: int = Field(default=7070, ge=0, le=65535)
    """0 takes any free port."""
    advertise: str | None = None
    """``HOST:PORT`` that others are to use; else ``bind``, or the machine's name."""
    token: SecretStr | None = None
    """The token that every request must carry, but for health and metrics. Without one,
    everyone may ask."""
    certificate_file: Path | None = None
    """A PEM file with the certificate, and those between it and the authority: serves TLS."""
    key_file: Path | None = None
    """A PEM file with the key of the certificate, if that is not in the same file."""

    @field_validator("advertise")
    @classmethod
    def _can_be_reached(cls, given: str | None) -> str | None:
        try:
            urls = broker_urls(PLAIN, given) if given else ("none",)
        except FeedRefused:
            urls = ()
        if len(urls) != 1:
            raise ValueError("should be HOST:PORT, as others reach this broker")
        return given

    @model_validator(mode="after")
    def _say_both(self) -> Self:
        if self.key_file is not None and self.certificate_file is None:
            raise ValueError("key_file goes with certificate_file")
        return self

    @property
    def secret(self) -> Secret | None:
        """The token. Raise ``UserError`` for a file that cannot be read, or holds none."""
        return self.secret_of("token")

    @property
    def tls(self) -> ssl.SSLContext | None:
        """A context that serves what the files hold as each connection begins.

        Raise ``UserError`` for files that are no certificate and key.
        """
        if self.certificate_file is None:
            return None
        served = FileValue(
            partial(self._read, ServedCertificate(self.certificate_file, self.key_file))
        )
        context = served.current()

        def renew(connection: ssl.SSLObject, *_: object) -> None:
            connection.context = served.current()

        context.sni_callback = renew
        return context

    def _read(self, served: ServedCertificate) -> ssl.SSLContext:
        try:
            return served.context()
        except (OSError, ssl.SSLError) as error:
            raise UserError(
                f"web.certificate_file {self.certificate_file} and its key cannot be used: "
                f"{error}. Give PEM files"
            ) from error


class WritingSection(Section):
    """How records become objects."""

    flush_bytes: Bytes = Field(default=4 * 1024 * 1024, ge=1, le=256 * 1024 * 1024)
    """The size of a full object. In an object store, where each object costs a request, a
    broker writes at most five smaller ones a second."""
    buffer_bytes: Bytes = Field(default=64 * 1024 * 1024, ge=1)
    """Memory for requests while they are read, and for records that wait to be written. When it
    is used up, producers wait."""
    cache_bytes: Bytes = Field(default=256 * 1024 * 1024, ge=1)
    """Memory for objects that readers ask for, besides 64 MiB for headers."""


class CompactionSection(Section):
    """How many small objects become few large ones. The same on all brokers of a cluster."""

    enabled: bool = True
    """Whether this broker compacts its objects, and deletes those that are in runs."""
    bytes: Bytes = Field(default=64 * 1024 * 1024, ge=1)
    """In the newest era, compact once this much is not compacted,"""
    objects: int = Field(default=4096, ge=64)
    """or once there are this many objects,"""
    age: Seconds = 3600.0
    """or once the oldest of them is this old."""
    memory: Bytes = Field(default=64 * 1024 * 1024, ge=1024 * 1024)
    """Memory for records while they are compacted."""


class MembershipSection(Section):
    """How brokers see each other live and die."""

    expiration: Annotated[Seconds, Field(ge=1)] = 10.0
    """A broker that shows no sign of life for this long loses its partitions. It sends ten in
    that time."""


class BrokerSettings(AllSettings):
    """Everything that can be set for a broker."""

    prefix = "CHANGEFEED_BROKER__"
    init_command = "changefeed config broker"

    broker: BrokerSection = BrokerSection.defaults()
    web: WebSection = WebSection.defaults()
    writing: WritingSection = WritingSection.defaults()
    compaction: CompactionSection = CompactionSection.defaults()
    membership: MembershipSection = MembershipSection.defaults()
    log: LogSettings = LogSettings.defaults()

    @property
    def core(self) -> CoreSettings:
        """What the broker's core is run with."""
        local = self.broker.cluster.startswith(("file:", "memory:"))
        return CoreSettings(
            puts=inf if local else _PUTS,
            flush_bytes=self.writing.flush_bytes,
            buffer_bytes=self.writing.buffer_bytes,
            cache_bytes=self.writing.cache_bytes,
            compaction=self.compaction.enabled,
            compaction_bytes=self.compaction.bytes,
            compaction_objects=self.compaction.objects,
            compaction_age=self.compaction.age,
            compaction_memory=self.compaction.memory,
            heartbeat=self.membership.expiration / _HEARTBEATS,
            expiration=self.membership.expiration,
        )


def load_broker_settings(file: Path | None, flags: Mapping[str, Any]) -> BrokerSettings:
    """Merge a TOML file, the environment and nested ``flags`` into settings.

    Raise ``UserError``, which names each setting that is wrong.
    """
    settings = read_settings(BrokerSettings, file, flags)
    if not settings.broker.cluster:
        raise UserError(
            "broker.cluster is not set: say where the cluster lies with --cluster, as in "
            "--cluster=file:///data/cluster, or in CHANGEFEED_BROKER__BROKER__CLUSTER"
        )
    return settings

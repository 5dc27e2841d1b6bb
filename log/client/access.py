"""What opens the brokers of a cluster: a token, and whom to trust over TLS."""

import os
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, SecretStr

from changefeed.feeds.backend import backend_sections
from changefeed.feeds.errors import FeedRefused
from changefeed.runtime.backends import own_settings
from changefeed.runtime.secret import Secret
from changefeed.runtime.secret_settings import HasSecrets
from changefeed.runtime.settings import Seconds, SecondsOrZero


class BrokersSettings(HasSecrets):
    """``[backends.brokers]``: a token is better set in the environment than in a file."""

    token: SecretStr | None = None
    ca_file: Path | None = None
    wait: Annotated[SecondsOrZero, Field(le=30)] = 0.5
    call_timeout: Seconds = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAccess:
    """``wait`` is how long a read waits for a first change, in seconds; beyond that, a broker
    has ``call_timeout`` for its answer before the next one is asked.

    Without ``ca_file`` the authorities that this machine trusts are asked.
    """

    token: Secret | None = field(default=None, repr=False)
    ca_file: Path | None = None
    wait: float = 0.5
    call_timeout: float = 5.0

    @classmethod
    def of(cls, settings: BrokersSettings) -> "BrokerAccess":
        """Raise ``UserError`` for a file of a token that cannot be read."""
        return cls(
            token=settings.secret_of("token"),
            ca_file=settings.ca_file,
            wait=settings.wait,
            call_timeout=settings.call_timeout,
        )

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] | None = None) -> "BrokerAccess":
        """Take what ``CHANGEFEED_BACKENDS__BROKERS__TOKEN`` and its like say."""
        from changefeed.log.client.backend import BACKEND  # noqa: PLC0415 - it names us

        sections = backend_sections(os.environ if environ is None else environ)
        return cls.of(own_settings(BACKEND, sections))

    @property
    def headers(self) -> Mapping[str, str]:
        """What shows a broker the token, as it is now."""
        if self.token is None:
            return {}
        return {"Authorization": f"Bearer {self.token.current()}"}

    def tls(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise FeedRefused(
                f"the certificates in {self.ca_file} cannot be read: {error}. Name a file of "
                f"PEM certificates in backends.brokers.ca_file"
            ) from error

    def trust_more(self, tls: ssl.SSLContext | None) -> None:
        """Have a context trust what ``ca_file`` holds by now, beside what it held before."""
        if tls is not None and self.ca_file is not None:
            with suppress(OSError, ssl.SSLError):  # what it held is trusted on
                tls.load_verify_locations(self.ca_file)

"""What keeps TLS from coming about, and no other attempt can mend: certificates.

Clients count it as a connection that failed, as they do a server that is away. A host
would then try for ever what a person has to change.
"""

import re
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from changefeed.runtime.named_file import read_file

_BY_THE_SERVER = re.compile(
    r"ALERT_(\w*CERTIFICATE\w*|UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE_FAILURE|PROTOCOL_VERSION)$"
)
_IN_A_FILE = re.compile("NO_CERTIFICATE_OR_CRL_FOUND|NO_START_LINE|MISMATCH|PEM|ASN1")

SYSTEM_ADVICE = (
    "name the authority that signed it in SSL_CERT_FILE, or add it to those of the system; "
    "look at the host name in the address, and at the clock of this machine"
)
"""For clients that take the authorities that OpenSSL does."""


def certificate_failure(error: BaseException) -> str | None:
    """Say what is wrong with certificates, if that is why ``error`` was raised."""
    for one in _causes(error):
        if isinstance(one, ssl.SSLCertVerificationError):
            why = getattr(one, "verify_message", one)
            return f"its certificate is not trusted ({why})"
        reason = (getattr(one, "reason", "") or "") if isinstance(one, ssl.SSLError) else ""
        shown = reason.replace("_", " ").lower()
        if _BY_THE_SERVER.search(reason):
            return f"it does not take the certificate of this client, or wants one ({shown})"
        if _IN_A_FILE.search(reason):
            return f"a certificate or key that the address names cannot be used ({shown})"
    return None


def unreadable_file(paths: Iterable[str]) -> str | None:
    """Say of the first file that cannot be read which it is, and why."""
    for path in paths:
        try:
            read_file(Path(path), most=_MAX_BYTES)
        except OSError as error:
            return f"{path} cannot be read ({error.strerror})"
    return None


_MAX_BYTES: Final = 2**24
"""No file of certificates is larger."""


class ServedCertificate:
    """Makes the contexts of a server from PEM files, anew when they have changed."""

    def __init__(self, certificate: Path, key: Path | None) -> None:
        self._files = (certificate.absolute(), (key or certificate).absolute())
        self._seen: object = None
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext:
        """Return a context for new connections. Raise ``OSError`` or ``ssl.SSLError``."""
        seen = [(x.st_mtime_ns, x.st_ino, x.st_size) for x in (y.stat() for y in self._files)]
        if self._context is None or seen != self._seen:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._files)
            self._context, self._seen = context, seen
        return self._context


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in seen:
        yield at
        seen.append(at)
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)

"""A certificate that the emulator makes for itself, good for this machine's names, and others.

It is no authority, so a client that trusts it trusts this server and nobody else.
"""

import datetime as dt
import ipaddress
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509

_BEGIN = "-----BEGIN CERTIFICATE-----"
_HERE = ("localhost", "127.0.0.1", "::1")
_DAYS = 825  # what clients accept of a server certificate at the most


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a server shows: the TLS side, and the certificate as PEM text for its clients."""

    context: ssl.SSLContext
    certificate: str


def identity(directory: Path | None, names: Sequence[str] = ()) -> Identity:
    """Return who the server is; the certificate stays in ``directory``, if given.

    Raises ``RuntimeError`` with advice if the cryptography package is missing, and
    ``ValueError`` if the certificate in the directory is not good for one of the names.
    """
    if directory is None:
        with tempfile.TemporaryDirectory() as temporary:
            return _identity(Path(temporary), names)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _identity(directory, names)


def _identity(directory: Path, names: Sequence[str]) -> Identity:
    path = directory / "emulator.pem"  # key and certificate, made the first time
    if not path.exists():
        text = _made(names)
        path.touch(mode=0o600)
        path.write_bytes(text)
    whole = path.read_text("ascii")
    certificate = whole[whole.index(_BEGIN) :]
    _check_names(path, certificate, names)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return Identity(context=context, certificate=certificate)


def _check_names(path: Path, certificate: str, names: Sequence[str]) -> None:
    if not names:
        return
    from cryptography import x509  # noqa: PLC0415 - only TLS needs it

    found = x509.load_pem_x509_certificate(certificate.encode())
    said = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    for name in names:
        if _alternative(name) not in said:
            raise ValueError(
                f"The certificate in {path} is not good for the name {name!r}. Delete the file "
                f"to get a new one, and let your clients trust that."
            )


def _alternative(name: str) -> "x509.GeneralName":
    from cryptography import x509  # noqa: PLC0415 - only TLS needs it

    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _made(names: Sequence[str]) -> bytes:
    try:
        from cryptography import x509  # noqa: PLC0415 - only TLS needs it
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        from cryptography.x509.oid import NameOID  # noqa: PLC0415
    except ImportError as error:
        raise RuntimeError(
            "The emulator needs the package cryptography to make a certificate for --tls: "
            "pip install cryptography. Or leave --tls out: clients take http:// as well."
        ) from error
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    alternatives = [_alternative(x) for x in dict.fromkeys((*_HERE, *names))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return secret + certificate.public_bytes(serialization.Encoding.PEM)

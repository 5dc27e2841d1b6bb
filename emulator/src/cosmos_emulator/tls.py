"""A certificate that the emulator makes for itself, good for this machine's names only."""

import datetime as dt
import ipaddress
import ssl
import tempfile
from pathlib import Path

_DAYS = 825  # what clients accept of a server certificate at the most


def server_context(directory: Path | None) -> ssl.SSLContext:
    """Return the TLS side of a server; the certificate stays in ``directory``, if given.

    Raises ``RuntimeError`` with advice if the cryptography package is missing.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if directory is None:
        with tempfile.TemporaryDirectory() as temporary:
            context.load_cert_chain(_certificate(Path(temporary)))
    else:
        directory.mkdir(parents=True, exist_ok=True)
        context.load_cert_chain(_certificate(directory))
    return context


def _certificate(directory: Path) -> Path:
    """Return the file with key and certificate, made the first time."""
    path = directory / "emulator.pem"
    if not path.exists():
        text = _made()
        path.touch(mode=0o600)
        path.write_bytes(text)
    return path


def _made() -> bytes:
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
    hosts = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    names = [x509.DNSName("localhost"), *(x509.IPAddress(x) for x in hosts)]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return secret + certificate.public_bytes(serialization.Encoding.PEM)

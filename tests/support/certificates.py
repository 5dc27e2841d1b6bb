"""Authorities that sign the certificates of servers and clients, each for one test."""

from pathlib import Path

import trustme


class Authority:
    """Signs certificates, and keeps them as files in a directory that servers may read."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._signs = trustme.CA()
        self.certificate = directory / "authority.pem"
        self._signs.cert_pem.write_to_path(self.certificate)

    def issue(self, name: str) -> tuple[Path, Path]:
        """Return the files of a certificate, and of its key, for a host, address or user."""
        issued = self._signs.issue_cert(name, common_name=name)
        certificate, key = (self._directory / f"{name}.{x}" for x in ("crt", "key"))
        certificate.write_bytes(b"".join(x.bytes() for x in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(key)
        return certificate, key

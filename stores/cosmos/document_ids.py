"""The ids of documents: leases as other processors name them, and everything beside them.

``{prefix}..{range}`` is a lease. All processors list leases by ``STARTSWITH(c.id,
'{prefix}..')``, so what is not a lease must not have the two dots: the markers
``{prefix}.info`` and ``{prefix}.lock``, which are theirs too, and our own records, such
as ``{prefix}.host.{name}``.

Cosmos DB does not take every text for an id. A name that it might refuse (slashes,
question marks, control characters, very long ones) is replaced by its hash behind a
tilde; the document itself holds the true name.
"""

import hashlib
import re
from dataclasses import dataclass

_PLAIN = re.compile(r"[A-Za-z0-9_.:@-][A-Za-z0-9_.:@ -]{0,199}(?<! )")


@dataclass(frozen=True, slots=True)
class DocumentIds:
    """The ids under one prefix, which is that of one fleet over one feed."""

    prefix: str

    @property
    def leases(self) -> str:
        """What the id of every lease begins with."""
        return f"{self.prefix}.."

    @property
    def info(self) -> str:
        return f"{self.prefix}.info"

    @property
    def lock(self) -> str:
        return f"{self.prefix}.lock"

    def lease(self, range_id: str) -> str:
        return self.leases + _id_of(range_id)

    def records(self, kind: str) -> str:
        """What the id of every record of a kind begins with."""
        assert "." not in kind, f"{kind!r} may be listed among the leases"
        return f"{self.prefix}.{kind}."

    def record(self, kind: str, name: str) -> str:
        return self.records(kind) + _id_of(name)


def processor_prefix(processor: str, account_host: str, database: str, container: str) -> str:
    """Return the prefix that the .NET processor gives its leases.

    ``database`` and ``container`` are the resource ids (``_rid``) of the monitored
    container; Java's ``handleChanges`` has their names instead.
    """
    return f"{processor}{account_host}_{database}_{container}"


def _id_of(name: str) -> str:
    if _PLAIN.fullmatch(name) and not name.startswith("."):
        return name
    hashed = hashlib.blake2b(name.encode(errors="surrogatepass"), digest_size=20).hexdigest()
    assert _PLAIN.fullmatch(hashed), f"{hashed} is not an id that Cosmos DB takes"
    return f"~{hashed}"

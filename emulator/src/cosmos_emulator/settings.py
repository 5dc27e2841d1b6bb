"""The settings that the emulator starts with."""

from dataclasses import dataclass
from pathlib import Path

DEVELOPMENT_KEY = (  # no secret: every Cosmos DB emulator answers to this key
    "C2y6yDjf5/R+ob0N8A7Cgv30VRDJIWEHLM+4QDU5DE2nQ9nDuVTqobD4b8mGGyPMbIZnqyMsEcaGQy67XIw/Jw=="
)
USUAL_REGION = "South Central US"
"""By it, and the id of the account, clients know an emulator, and keep their address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionSettings:
    """A region by its name; while another one writes, it is ``lag`` seconds behind that."""

    name: str
    lag: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorSettings:
    """Where the emulator listens, what it keeps, and when its ranges split by themselves.

    Port 0 takes any free port. Without ``data`` everything is kept in memory. With
    ``tls`` it makes itself a certificate, which is kept in ``data`` if there is one.
    ``split_at_items`` and ``split_at_bytes`` are per physical range; ``fault_seed`` makes the
    faults that strike by chance strike the same way again. ``seed`` is a file or directory that
    fills an empty account. ``lenient`` serves queries of all
    ranges that an account leaves to clients. A query may take ``query_seconds`` for a page.
    ``host_names`` are further names by which clients ask, as the certificate then says;
    ``cors`` are origins whose pages may ask, or ``*``. The first of ``regions`` writes, and the
    others follow it; where there are several, each has a port of its own behind ``port``.
    ``consistency`` is the account's, by its name in Cosmos DB.
    """

    host: str = "127.0.0.1"
    port: int = 8081
    data: Path | None = None
    key: str = DEVELOPMENT_KEY
    tls: bool = False
    split_at_items: int | None = None
    split_at_bytes: int | None = None
    fault_seed: int | None = None
    seed: Path | None = None
    lenient: bool = False
    query_seconds: float = 10.0
    host_names: tuple[str, ...] = ()
    cors: tuple[str, ...] = ()
    regions: tuple[RegionSettings, ...] = (RegionSettings(name=USUAL_REGION),)
    consistency: str = "Session"

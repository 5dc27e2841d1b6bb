"""What is said of the addresses and stores of leases."""

from typing import Final

from changefeed.leases.addresses import open_container
from changefeed.leases.postgres.address import read_address

from .table import Table

LEASES: Final = Table("Leases")

LEASES.each(
    open_container,
    {
        "leases in the memory of one process": "memory:",
        "an address with a scheme of no store": "nats://host",
        "a path for an address": "leases.db",
        "a file without a path": "sqlite:",
        "no address": "",
    },
)
LEASES.each(
    read_address,
    {
        "PostgreSQL without a host": "db",
        "PostgreSQL with an empty fleet": "//h/db?fleet=",
        "PostgreSQL with an empty schema": "//h/db?schema=",
        "PostgreSQL with a cache size that is no number": "//h/db?statement_cache_size=x",
    },
)

"""What is said of hosts."""

from typing import Final

from .table import Table

HOSTS: Final = Table("Hosts and fleets")

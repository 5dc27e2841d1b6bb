"""What is said of runtime."""

from typing import Final

from .table import Table

RUNTIME: Final = Table("Settings and what every process has")

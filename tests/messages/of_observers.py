"""What is said of observers."""

from typing import Final

from .table import Table

OBSERVERS: Final = Table("Observers and dead letters")

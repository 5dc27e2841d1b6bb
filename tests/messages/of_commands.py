"""What is said of commands."""

from typing import Final

from .table import Table

COMMANDS: Final = Table("Commands")

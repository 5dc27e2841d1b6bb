"""What is said of feeds."""

from typing import Final

from .table import Table

FEEDS: Final = Table("Feeds and the event log")

"""All tables of messages, and the page that they are written to."""

from pathlib import Path
from typing import Final

from .of_commands import COMMANDS
from .of_feeds import FEEDS
from .of_hosts import HOSTS
from .of_leases import LEASES
from .of_observers import OBSERVERS
from .of_pipeline import PIPELINE
from .of_runtime import RUNTIME

PAGE: Final = Path(__file__).with_name("messages.md")
TABLES: Final = (HOSTS, LEASES, FEEDS, OBSERVERS, PIPELINE, COMMANDS, RUNTIME)

_HEAD = """\
# What errors say

Written by `python -m tests.messages`. Read the sentences as their users will.

"""


def written() -> str:
    """Return the page as the code says it now."""
    return _HEAD + "\n".join(line for table in TABLES for line in table.lines())

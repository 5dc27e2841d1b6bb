"""What vendors' clients talk to: an account that the environment names, or an emulator.

COSMOS_ACCOUNT_ENDPOINT and COSMOS_ACCOUNT_KEY name an account. Each program works in databases
of its own, and deletes them.
"""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cosmos_emulator import DEVELOPMENT_KEY
from emulator.tests.process import process

_URL: Final = "COSMOS_ACCOUNT_ENDPOINT"
_KEY: Final = "COSMOS_ACCOUNT_KEY"


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """``is_account`` where it is not the emulator: nothing can be split on demand there."""

    url: str
    key: str
    is_account: bool

    @property
    def environment(self) -> Mapping[str, str]:
        return {"COSMOS_ENDPOINT": self.url, "COSMOS_KEY": self.key}


def has_account() -> bool:
    """Return whether the environment names an account."""
    return bool(os.environ.get(_URL) and os.environ.get(_KEY))


@asynccontextmanager
async def endpoint(cwd: Path) -> AsyncIterator[Endpoint]:
    """Give the account that the environment names; without one, run an emulator."""
    if has_account():
        url = f"{os.environ[_URL].rstrip('/')}/"
        yield Endpoint(url=url, key=os.environ[_KEY], is_account=True)
        return
    async with process(cwd) as (_, url):
        yield Endpoint(url=url, key=DEVELOPMENT_KEY, is_account=False)

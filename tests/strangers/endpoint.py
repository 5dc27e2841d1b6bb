"""What the strangers talk to: an account of the environment, or an emulator."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from changefeed.emulator import DEVELOPMENT_KEY
from tests.support.emulator_process import emulator_process


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """``is_account`` where it is not the emulator: nothing can be split on demand there."""

    url: str
    key: str
    is_account: bool

    @property
    def environment(self) -> Mapping[str, str]:
        return {"COSMOS_ENDPOINT": self.url, "COSMOS_KEY": self.key}


@asynccontextmanager
async def endpoint(cwd: Path) -> AsyncIterator[Endpoint]:
    """Give the account that the environment names; without one, run an emulator."""
    url = os.environ.get("CHANGEFEED_COSMOS_ENDPOINT")
    key = os.environ.get("CHANGEFEED_COSMOS_KEY")
    if url and key:
        yield Endpoint(url=url, key=key, is_account=True)
        return
    async with emulator_process(cwd) as (_, url):
        yield Endpoint(url=url, key=DEVELOPMENT_KEY, is_account=False)

"""Who only looks at dead letters makes no place for them."""

import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from pathlib import Path

import pytest

from changefeed import Settings
from changefeed.fleet.letters import existing_letters
from changefeed.observers.dead_letters import DeadLetter, open_dead_letters
from changefeed.runtime.errors import UserError
from cosmos_emulator.testing import running
from tests.support import make, servers
from tests.support.lease_containers import KEYS

Place = Callable[[Path], AbstractAsyncContextManager[str]]


def in_postgres(_: Path) -> AbstractAsyncContextManager[str]:
    try:
        return nullcontext(f"{servers.postgres().url}?schema=letters+{uuid.uuid4().hex}")
    except servers.Missing as missing:
        pytest.skip(str(missing))


def in_blobs(_: Path) -> AbstractAsyncContextManager[str]:
    try:
        return nullcontext(f"blob+{servers.azurite().endpoint}/letters-{uuid.uuid4().hex}")
    except servers.Missing as missing:
        pytest.skip(str(missing))


@asynccontextmanager
async def in_cosmos(_: Path) -> AsyncIterator[str]:
    async with running() as url:
        yield f"cosmos+{url}d/letters"


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(lambda x: nullcontext(f"jsonl:{x}/made/letters"), id="jsonl"),
        pytest.param(lambda x: nullcontext(f"sqlite:{x}/made/letters"), id="sqlite"),
        pytest.param(in_postgres, id="postgres"),
        pytest.param(in_blobs, id="blob"),
        pytest.param(in_cosmos, id="cosmos"),
    ],
)
async def test_who_only_looks_makes_nothing(place: Place, tmp_path: Path) -> None:
    async with place(tmp_path) as address:
        settings = Settings.model_validate(
            {
                "observer": {"dead_letters": address},
                "backends": {name: {"key": key} for name, key in KEYS.items()},
            }
        )

        async def seen() -> Sequence[DeadLetter]:
            async with existing_letters(address, settings.open_options) as letters:
                return await make.whole(letters)

        for _ in range(2):
            with pytest.raises(UserError, match="letters"):
                await seen()
        async with open_dead_letters(address, settings.open_options) as letters:
            await letters.put(make.letter(1))
        assert await seen() == [make.letter(1)]

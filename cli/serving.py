"""Commands that serve until a signal asks for the end, which may come before they do."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from changefeed.runtime.shutdown import StopSignals


def serve_until_stopped(main: Callable[[StopSignals], Coroutine[Any, Any, None]]) -> None:
    """Run ``main``, which a signal cancels; from when it waits for one, it ends by itself."""

    async def heard() -> None:
        signals = StopSignals(budget=0.0)
        with signals.installed():
            await main(signals)

    with suppress(asyncio.CancelledError):  # asked to, while it still waited for its stores
        asyncio.run(heard())

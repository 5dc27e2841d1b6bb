"""How many dead letters there are, for the page: counted while somebody watches.

To count them reads all of them. So a count rests for a hundred times as long as it took.
"""

import asyncio

from changefeed.host.operations.letters import existing_letters
from changefeed.host.settings import Settings
from changefeed.runtime.errors import StoreMissing, StoreUnavailable, UserError

_WITHIN = 5.0
_REST, _REST_FOR_EACH_SECOND = 10.0, 100.0


class LetterCount:
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._count: int | None = None
        self._due: float | None = None

    async def look(self) -> int | None:
        """Return the last count; ``None`` if the letters cannot be counted."""
        clock = asyncio.get_running_loop().time
        began = clock()
        if self._due is None or began >= self._due:
            self._count = await self._counted()
            took = clock() - began
            self._due = clock() + max(_REST, _REST_FOR_EACH_SECOND * took)
        return self._count

    async def _counted(self) -> int | None:
        try:
            async with asyncio.timeout(_WITHIN), existing_letters(self._settings) as letters:
                return len(await letters.list())
        except StoreMissing:
            return 0
        except (UserError, StoreUnavailable, OSError):  # TimeoutError is one
            return None

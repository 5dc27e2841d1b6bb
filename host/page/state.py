"""What the page shows: the status of a fleet, and what is known beside it."""

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import Any

import msgspec
from msgspec.structs import asdict

from changefeed.fleet.changes import difference
from changefeed.fleet.letters import existing_letters
from changefeed.fleet.peers import Peers, PipelineTable
from changefeed.fleet.status import FleetStatus
from changefeed.host.settings import Settings
from changefeed.runtime.errors import StoreMissing, StoreUnavailable, UserError

_WITHIN = 5.0
_REST, _REST_FOR_EACH_SECOND = 10.0, 100.0


class PageState(msgspec.Struct, frozen=True, kw_only=True):
    """What the page shows. ``me`` is the host that serves it, empty where none does. ``acts``
    says whether the page can do anything, for those who have the token. ``letters`` is how many
    dead letters there are, ``None`` if that is not known. ``processors`` are those of the
    process, each with a page beside this one, of ``processor``.
    """

    status: FleetStatus
    me: str = ""
    acts: bool = False
    letters: int | None = None
    pipelines: Sequence[PipelineTable] = ()
    processor: str = ""
    processors: Sequence[str] = ()

    def document(self) -> dict[str, Any]:
        """Return all of it in one, under the names of ``changefeed status --json``."""
        more = {x: y for x, y in asdict(self).items() if x != "status"}
        return {**asdict(self.status), **more}


def news(before: PageState, after: PageState) -> dict[str, Any]:
    """Return what turns one state of the page into the next."""
    found = difference(before.status, after.status)
    for name in ("letters", "pipelines"):
        if getattr(before, name) != getattr(after, name):
            found[name] = getattr(after, name)
    return found


class PageSource:
    """Adds to a status what the page shows beside it. ``acts`` says whether anyone may act.

    To count dead letters reads all of them: so a count rests for a hundred times as long as it
    took.
    """

    def __init__(
        self, settings: Settings, peers: Peers | None, *, me: str, acts: Callable[[], bool]
    ) -> None:
        self._settings = settings
        self._peers = peers
        self._me = me
        self._acts = acts
        self._letters: int | None = None
        self._letters_due = -inf
        self._tables: Sequence[PipelineTable] = ()

    async def state(self, status: FleetStatus, *, is_watched: bool = True) -> PageState:
        """Look at letters and tables only for somebody who watches."""
        if is_watched:
            await self._count_letters()
            if self._peers is not None:
                self._tables = await self._peers.tables(self._settings.web.pipelines)
        return PageState(
            status=status,
            me=self._me,
            acts=self._acts(),
            letters=self._letters,
            pipelines=self._tables,
        )

    async def _count_letters(self) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        if began >= self._letters_due:
            self._letters = await self._counted()
            took = clock() - began
            self._letters_due = clock() + max(_REST, _REST_FOR_EACH_SECOND * took)

    async def _counted(self) -> int | None:
        """Return how many there are; ``None`` if they cannot be counted."""
        settings = self._settings
        try:
            opening = existing_letters(settings.observer.dead_letters, settings.open_options)
            async with asyncio.timeout(_WITHIN), opening as letters:
                return len(await letters.list())
        except StoreMissing:
            return 0
        except (UserError, StoreUnavailable, OSError):  # TimeoutError is one
            return None

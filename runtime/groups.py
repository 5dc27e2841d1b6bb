"""Tasks that are started in a group that may be winding down."""

import asyncio
from collections.abc import Coroutine
from typing import Any


def start_in(group: asyncio.TaskGroup, work: Coroutine[Any, Any, None]) -> None:
    """Start a task of the group; drop the work if the group takes no more tasks.

    It takes none once one of its tasks has failed, and the others are being cancelled, nor when
    all have ended. What could still be started then has nobody that it is for.
    """
    try:
        group.create_task(work)
    except RuntimeError:
        work.close()

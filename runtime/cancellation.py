"""Calls that are cancelled when they are asked to be, whatever their client does.

Some clients lose a cancellation: ``asyncio.wait_for`` of Python 3.11 does, where the answer
comes at the same moment. A loop around such a call would go on for ever, because a task is
cancelled once only.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def keep_cancellation(call: Awaitable[T]) -> T:
    """Await a call; raise ``CancelledError`` if its task was cancelled meanwhile.

    What it returned or raised is lost then: whether it took effect is unclear.
    """
    task = asyncio.current_task()
    assert task is not None, "a coroutine is awaited in a task"
    before = task.cancelling()
    try:
        result = await call
    except Exception as error:
        if task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
    if task.cancelling() > before:
        raise asyncio.CancelledError
    return result

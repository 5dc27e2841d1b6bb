"""How long calls take, in virtual seconds."""

import asyncio
from typing import Any

import pytest

from changefeed.host.call_watch import CallWatch, Overdue


async def test_a_thousand_calls_set_one_timer_and_each_has_its_own_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loop, seen = asyncio.get_running_loop(), list[Overdue]()
    watch = CallWatch(300, overdue=seen.append, returned=seen.clear)
    timers, set_timer = list[float](), loop.call_at

    def call_at(when: float, *rest: Any, **how: Any) -> asyncio.TimerHandle:
        timers.append(when)
        return set_timer(when, *rest, **how)

    with monkeypatch.context() as patched:
        patched.setattr(loop, "call_at", call_at)
        for _ in range(1000):
            watch.begin()
            watch.end()
    assert len(timers) == 1
    await asyncio.sleep(200)
    watch.begin()
    await asyncio.sleep(299)
    assert seen == []
    await asyncio.sleep(1)
    assert seen == ["call"]
    watch.end()
    assert seen == [], "it has come back"

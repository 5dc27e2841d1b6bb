"""What begins together, and ends together."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from structlog.contextvars import get_contextvars

from changefeed.runtime.errors import Failure
from changefeed.runtime.linked_tasks import Job, LinkedTasks


class Story:
    """Jobs that open at once or never, and what has become of them."""

    def __init__(self) -> None:
        self.together = LinkedTasks()
        self.running = dict[str, asyncio.Task[None]]()
        self.ended = list[str]()
        self.asked = Counter[str]()
        self.all_open = list[bool]()

    def job(self, name: str, end: Callable[[], object] = lambda: None) -> Job:
        """Return one that runs until it is asked to stop, and calls ``end`` then."""
        asked = asyncio.Event()

        def ask() -> None:
            self.asked[name] += 1
            asked.set()

        async def run() -> None:
            self.running[name] = asyncio.current_task()  # type: ignore[assignment]
            self.all_open.append(self.together.opened(name, ask))
            assert get_contextvars() == ({"processor": name} if name else {})
            await asked.wait()
            end()
            self.ended.append(name)

        return run

    def cancel(self, name: str) -> None:
        self.running[name].cancel()

    async def away(self) -> None:
        await asyncio.Event().wait()


def fail() -> None:
    raise ValueError


async def broken() -> None:
    raise KeyError


async def test_the_first_that_fails_stops_the_others_and_its_error_names_it() -> None:
    story = Story()
    jobs = {"a": story.job("a"), "b": broken, "away": story.away, "c": story.job("c")}
    with pytest.raises(KeyError) as caught:
        await story.together.run(jobs)
    assert caught.value.__notes__ == ["processor b"]
    assert sorted(story.ended) == ["a", "c"]


async def test_a_stop_ends_those_that_are_open_and_those_that_are_not() -> None:
    story = Story()
    asyncio.get_running_loop().call_later(1, story.together.stop)
    await story.together.run({"a": story.job("a"), "away": story.away, "b": story.job("b")})
    assert sorted(story.ended) == ["a", "b"]
    assert story.asked == {"a": 1, "b": 1}, "a second time would be to stop at once"
    assert story.all_open == [False, False]


async def test_the_last_that_opens_is_told_so() -> None:
    story = Story()
    asyncio.get_running_loop().call_later(1, story.together.stop)
    await story.together.run({"a": story.job("a"), "b": story.job("b")})
    assert story.all_open == [False, True]


async def test_a_stop_before_any_is_open_is_a_cancellation() -> None:
    story = Story()
    asyncio.get_running_loop().call_later(1, story.together.stop)
    with pytest.raises(asyncio.CancelledError):
        await story.together.run({"a": story.away, "b": story.away})


async def test_all_that_fail_are_raised() -> None:
    story = Story()
    with pytest.raises(ExceptionGroup) as caught:
        await story.together.run({"a": story.job("a", fail), "b": broken})
    assert {type(x) for x in caught.value.exceptions} == {ValueError, KeyError}


@pytest.mark.parametrize(("name", "said"), [("b", "processor b"), ("", "the main task")])
async def test_one_that_a_stranger_cancels_has_failed(name: str, said: str) -> None:
    story = Story()
    jobs = {name: story.job(name)} | ({"a": story.job("a")} if name else {})
    asyncio.get_running_loop().call_later(1, story.cancel, name)
    with pytest.raises(Failure, match=f"{said} was cancelled without a request"):
        await story.together.run(jobs)
    assert story.ended == (["a"] if name else [])

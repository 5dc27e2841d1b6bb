"""Many children, some of which die: in virtual time, with children that only pretend."""

import asyncio
import signal
from collections.abc import Callable

import pytest

from changefeed.cli.supervisor import Supervisor, exit_code, how_it_ended
from changefeed.host.child_start import ChildStart
from tests.support.looking import now


class Pretender:
    """A child that ends with a code after a while, and minds signals as it is told to."""

    def __init__(self, code: int, lives: float, *, minds: bool = True) -> None:
        self.pid = 1
        self.heard: list[int] = []
        self._code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._ends_with = code
        self._minds = minds
        asyncio.get_running_loop().call_later(lives, self._end, code)

    def send_signal(self, number: int) -> None:
        self.heard.append(number)
        if number == signal.SIGKILL:
            self._end(-number)
        elif self._minds:
            self._end(self._ends_with)

    async def wait(self) -> int:
        return await self._code

    def _end(self, code: int) -> None:
        if not self._code.done():
            self._code.set_result(code)


class Nursery:
    """Starts pretenders, and remembers when."""

    def __init__(self, make: Callable[[str, int], Pretender]) -> None:
        self._make = make
        self.started: list[tuple[str, float]] = []
        self.starts: list[ChildStart] = []
        self.children: list[Pretender] = []

    async def __call__(self, start: ChildStart) -> Pretender:
        name = start.name
        self.starts.append(start)
        nth = sum(1 for x, _ in self.started if x == name)
        self.started.append((name, now()))
        self.children.append(self._make(name, nth))
        return self.children[-1]


FOR_EVER = 1e9


async def test_a_stop_is_passed_on_to_every_child_and_the_end_is_orderly() -> None:
    codes = {"a": 0, "b": -signal.SIGTERM, "c": 128 + signal.SIGTERM}  # two were too young
    nursery = Nursery(lambda name, _: Pretender(codes[name], FOR_EVER))
    supervisor = Supervisor(nursery, budget=10)
    asyncio.get_running_loop().call_later(5, supervisor.stop)
    assert await supervisor.run([*codes]) == 0
    assert [x.heard for x in nursery.children] == 3 * [[signal.SIGTERM]]
    assert now() == 5


async def test_a_child_that_dies_is_started_again_at_once_and_later_if_it_dies_young() -> None:
    lives = [0.0, 0.0, 0.0, 100.0, 0.0, FOR_EVER]
    nursery = Nursery(lambda _, nth: Pretender(1, lives[nth]))
    supervisor = Supervisor(nursery, budget=10)
    asyncio.get_running_loop().call_later(200, supervisor.stop)

    await supervisor.run(["a"])

    assert [at for _, at in nursery.started] == [0, 0, 0.5, 1.5, 101.5, 102]


@pytest.mark.parametrize("code", [2, 141])
async def test_what_no_fresh_process_can_mend_stops_all(code: int) -> None:
    nursery = Nursery(
        lambda name, _: Pretender(code, 1) if name == "b" else Pretender(0, FOR_EVER)
    )
    assert await Supervisor(nursery, budget=10).run(["a", "b", "c"]) == code
    assert [name for name, _ in nursery.started] == ["a", "b", "c"]
    assert now() == 1


async def test_a_second_signal_kills_those_that_are_left() -> None:
    nursery = Nursery(lambda name, _: Pretender(0, FOR_EVER, minds=name == "a"))
    supervisor = Supervisor(nursery, budget=10)
    for at in (5, 6):
        asyncio.get_running_loop().call_later(at, supervisor.stop)

    assert await supervisor.run(["a", "b"]) == 1

    assert nursery.children[1].heard == [signal.SIGTERM, signal.SIGKILL]
    assert now() == 6


async def test_a_stop_while_a_restart_is_waited_for_starts_nothing_and_is_orderly() -> None:
    nursery = Nursery(lambda *_: Pretender(1, 0))
    supervisor = Supervisor(nursery, budget=10)
    asyncio.get_running_loop().call_later(0.2, supervisor.stop)
    assert await supervisor.run(["a"]) == 0
    assert len(nursery.started) == 2  # the second one at once


async def test_a_child_that_is_only_just_being_started_hears_of_the_stop() -> None:
    async def slowly(_: ChildStart) -> Pretender:
        await asyncio.sleep(3)
        return Pretender(0, FOR_EVER)

    supervisor = Supervisor(slowly, budget=10)
    asyncio.get_running_loop().call_later(1, supervisor.stop)
    assert await supervisor.run(["a"]) == 0
    assert now() == 3


@pytest.mark.parametrize(
    ("codes", "worst"), [([], 0), ([0, 0], 0), ([0, 1], 1), ([2, 1, 0], 2), ([0, -9], 1)]
)
def test_the_exit_code_is_the_worst(codes: list[int], worst: int) -> None:
    assert exit_code(codes) == worst


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, {"code": 0}),
        (-signal.SIGSEGV, {"signal": "SIGSEGV"}),
        (-signal.SIGRTMIN - 1, {"signal": f"signal {signal.SIGRTMIN + 1}"}),
    ],
)
def test_the_end_of_a_process_has_the_name_of_its_signal_or_its_code(
    code: int, said: dict[str, str | int]
) -> None:
    assert how_it_ended(code) == said

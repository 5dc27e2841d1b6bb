"""Tests that were collected once are run again and again, each time in a fork.

The parent has imported everything, and has no thread and no event loop. A child breaks
something in its own memory, runs tests, answers over a pipe and is gone, so nothing has to
be repaired. What a child started ends with it, and so do its files.
"""

import gc
import os
import pickle
import resource
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Generic, TypeVar

import hypothesis
import pytest

T = TypeVar("T")

_MEMORY = 4 * 2**30  # a broken loop may collect for ever
_WAITING = 5  # times the processor time that a child may have
_PIECE, _PIECE_PATIENCE = 100, 300
_TEXT = 2000
_OPTIONS = ("-q", "--capture=sys", "-p", "no:cacheprovider")


class NotFit(Exception):
    """The tests cannot show anything: they cannot be run, or fail on the unbroken code."""


@dataclass(frozen=True, slots=True)
class Task(Generic[T]):
    """What a child is to do, and for whom."""

    name: Any
    do: Callable[[], T]


@dataclass(frozen=True, slots=True)
class Lost:
    """A child that gave no answer, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Run:
    """What became of one test, and the end of what pytest says if it failed."""

    test: str
    failed: bool
    seconds: float
    text: str = ""


def with_tests(places: Sequence[str], use: Callable[[list[pytest.Item]], None]) -> None:
    """Collect the tests of ``places`` as pytest does, and call ``use`` with them."""
    session = _Session(use)
    try:
        code = pytest.main([*_OPTIONS, *places], plugins=[session])
    finally:
        if session.problem is not None:
            raise session.problem
    if code != pytest.ExitCode.OK:
        raise NotFit(f"the tests cannot be collected: {code}")


def run(items: Sequence[pytest.Item], *, until_one_fails: bool = True) -> list[Run]:
    """Run tests in this process, which must be a child."""
    done = list[Run]()
    for number, item in enumerate(items, 1):
        done.append(run_one(item, items[number] if number < len(items) else None))
        if until_one_fails and done[-1].failed:
            break
    end_of_tests(items)
    return done


def run_one(item: pytest.Item, following: pytest.Item | None) -> Run:
    """Run a test in this process, a child; fixtures that the following one needs stay."""
    reports = list[pytest.TestReport]()
    listener = _Listener(reports)
    began = time.perf_counter()
    item.config.pluginmanager.register(listener)
    try:
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
        failed = any(x.failed for x in reports)
    except BaseException:  # noqa: BLE001 - a test that ends the process has noticed, too
        failed = True
    item.config.pluginmanager.unregister(listener)
    text = next((x.longreprtext for x in reports if x.failed), "")
    return Run(item.nodeid, failed, time.perf_counter() - began, text[-_TEXT:])


def end_of_tests(items: Sequence[pytest.Item]) -> None:
    """Take down the fixtures that are left, as servers."""
    with suppress(BaseException):  # a broken one may not go
        items[0].session._setupstate.teardown_exact(None)


def in_pieces(
    items: Sequence[pytest.Item], do: Callable[[Sequence[pytest.Item]], list[T]]
) -> Iterator[T]:
    """Do something with tests of the unbroken code, in children that have some of them each."""
    pieces = [items[x : x + _PIECE] for x in range(0, len(items), _PIECE)]
    tasks = (Task(x[0].nodeid, partial(do, x)) for x in pieces)
    for first, answer in forked(tasks, patience=_PIECE_PATIENCE):
        if isinstance(answer, Lost):
            raise NotFit(f"the unbroken code, from {first} on: {answer.why}")
        yield from answer


def forked(
    tasks: Iterable[Task[T]], *, patience: int, at_once: int = 2
) -> Iterator[tuple[Any, T | Lost]]:
    """Do each task in a child; yield the name of the task and the answer, as they come.

    ``patience`` is in seconds of processor time, so that a busy machine changes nothing; a
    child that only waits is given up as well, later.
    """
    left, children = iter(tasks), list[_Child]()
    try:
        while True:
            while len(children) < at_once and (task := next(left, None)) is not None:
                children.append(_Child.of(task, patience))
            if not children:
                return
            first_end = min(x.end for x in children) - time.monotonic()
            ready = wait([x.answers for x in children], max(0.0, first_end))
            for child in [*children]:
                if child.answers in ready or time.monotonic() >= child.end:
                    children.remove(child)
                    yield child.name, child.answer()
    finally:
        for child in children:
            child.kill()


@dataclass(frozen=True, slots=True, eq=False)
class _Child:
    name: Any
    pid: int
    answers: Connection
    end: float
    folder: Path

    @classmethod
    def of(cls, task: Task[Any], patience: int) -> "_Child":
        answers, answer = Pipe(duplex=False)
        folder = Path(tempfile.mkdtemp(prefix="mutant-"))
        pid = os.fork()
        if pid == 0:
            _live(task, answer, folder, patience)
        answer.close()
        return cls(task.name, pid, answers, time.monotonic() + _WAITING * patience, folder)

    def answer(self) -> Any:
        try:
            if not self.answers.poll():
                return Lost("no end")
            problem, answer = pickle.loads(self.answers.recv_bytes())
        except EOFError:
            return Lost("no end, or the end of the process")
        finally:
            self.kill()
        if problem:
            raise NotFit(problem)
        return answer

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.answers.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def _live(task: Task[Any], answer: Connection, folder: Path, patience: int) -> None:
    """Be the child."""
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (patience, patience))
        os.environ["PYTEST_DEBUG_TEMPROOT"] = str(folder)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        answer.send_bytes(pickle.dumps((None, task.do())))
    except BaseException:  # noqa: BLE001 - told to the parent, whatever it is
        answer.send_bytes(pickle.dumps((traceback.format_exc(), None)))
    finally:
        os._exit(0)


@dataclass(frozen=True, slots=True, eq=False)
class _Listener:
    reports: list[pytest.TestReport]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.reports.append(report)


@dataclass(slots=True, eq=False)
class _Session:
    """A plugin: pytest collects, and ``use`` says what is run."""

    use: Callable[[list[pytest.Item]], None]
    problem: BaseException | None = field(default=None, init=False)

    def pytest_sessionstart(self) -> None:
        hypothesis.settings.register_profile(
            "mutants",
            deadline=None,
            derandomize=True,
            database=None,
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        )
        hypothesis.settings.load_profile("mutants")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return False
        session.config.pluginmanager.unregister(name="terminalreporter")
        gc.collect()
        gc.freeze()
        try:
            self.use(session.items)
        except (Exception, SystemExit) as problem:  # noqa: BLE001 - raised by with_tests
            self.problem = problem
        return True

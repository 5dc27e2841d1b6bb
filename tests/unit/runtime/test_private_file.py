"""Who may read the files that hold changes, or letters."""

import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from changefeed.log.stores.local_store import LocalStore
from changefeed.observers.builtin import JsonLinesObserver
from changefeed.observers.dead_letters import open_dead_letters
from cosmos_emulator.store import Store
from tests.support import make

pytestmark = pytest.mark.real_time


async def letters(scheme: str, folder: Path) -> None:
    async with open_dead_letters(f"{scheme}:{folder / 'letters'}") as opened:
        assert await opened.list() == []


async def jsonl_observer(folder: Path) -> None:
    observer = JsonLinesObserver(str(folder / "changes"))
    observer.open(make.context())
    observer.process(make.context(), [make.change()])


async def event_log(folder: Path) -> None:
    await make.event_log(folder / "log", make.records(3))


async def local_store(folder: Path) -> None:
    await LocalStore(folder).put("object", b"a change")


async def emulator(folder: Path) -> None:
    Store(folder / "data").close()


@pytest.mark.parametrize(
    "write",
    [
        lambda folder: letters("jsonl", folder),
        lambda folder: letters("sqlite", folder),
        jsonl_observer,
        event_log,
        local_store,
        emulator,
    ],
)
async def test_no_other_user_can_reach_them(
    tmp_path: Path, write: Callable[[Path], Awaitable[None]]
) -> None:
    await write(tmp_path)
    found = files_below(tmp_path)
    assert found
    for file in found:
        way = [file, *(x for x in file.parents if tmp_path in x.parents)]
        assert any(stat.S_IMODE(x.stat().st_mode) & 0o077 == 0 for x in way), file


def files_below(folder: Path) -> list[Path]:
    return [x for x in folder.rglob("*") if x.is_file()]

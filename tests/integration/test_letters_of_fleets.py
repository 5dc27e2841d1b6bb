"""Several fleets that put changes of one feed aside in one place."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from changefeed import Change, MemoryFeed, Settings, open_host
from changefeed.observers.dead_letters import LetterHead, open_dead_letters
from tests.support.processes import PATIENCE


async def billing(changes: Sequence[Change]) -> None:
    raise ValueError(f"no bill for {changes[0].key}")


async def mail(changes: Sequence[Change]) -> None:
    raise OSError(f"no mail to {changes[0].key}")


def settings(place: Path, *, leases: str, name: str | None) -> Settings:
    return Settings.model_validate(
        {
            "host": {"name": "anna"},
            "feed": {"poll_interval": 0.05},
            "leases": {"address": f"sqlite:{place}/{leases}", "expiration": 3},
            "observer": {
                "name": name,
                "on_failure": "dead-letter",
                "retry": {"attempts": 2, "max_delay": 0.01},
                "dead_letters": f"sqlite:{place}/letters.db",
            },
        }
    )


async def letters_at(place: Path) -> list[LetterHead]:
    async with open_dead_letters(f"sqlite:{place}/letters.db") as letters:
        return list(await letters.list())


async def puts_a_letter(
    place: Path,
    wanted: Settings,
    observer: Callable[[Sequence[Change]], Awaitable[None]],
    feed: MemoryFeed,
) -> None:
    """Run one host until a new letter is kept."""
    before = len(await letters_at(place))
    async with open_host(wanted, observer, feed=feed) as host:
        running = asyncio.create_task(host.run())
        async with asyncio.timeout(PATIENCE):
            while len(await letters_at(place)) == before:
                assert not running.done()
                await asyncio.sleep(0.02)
        host.stop()
        await running


async def test_each_fleet_keeps_a_letter_of_its_own_for_a_change(tmp_path: Path) -> None:
    feed = MemoryFeed(1)
    feed.append("one")
    for observer, name, leases in (
        (billing, None, "a.db"),
        (mail, None, "b.db"),
        (billing, "bills", "c.db"),
    ):
        wanted = settings(tmp_path, leases=leases, name=name)
        await puts_a_letter(tmp_path, wanted, observer, feed)
    found = await letters_at(tmp_path)
    assert {(x.observer, x.fleet, x.kind) for x in found} == {
        (f"{__name__}:billing", f"sqlite:{tmp_path}/a.db", "ValueError"),
        (f"{__name__}:mail", f"sqlite:{tmp_path}/b.db", "OSError"),
        ("bills", f"sqlite:{tmp_path}/c.db", "ValueError"),
    }
    assert len({x.id for x in found}) == 3
    assert {x.feed for x in found} == {feed.identity}

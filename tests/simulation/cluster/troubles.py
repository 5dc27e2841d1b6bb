"""What goes wrong in a seed, and what people do meanwhile."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from changefeed.feeds.errors import FeedError, FeedRefused
from changefeed.log.catalog.names import WAL
from changefeed.log.catalog.ranges import ranges_of
from tests.simulation.probes import BrokerProbe as Probe

if TYPE_CHECKING:
    from .world import World

Event = Callable[[], Coroutine[Any, Any, None]]
_NOT_SYNCED = 50
"""A loss of power may undo so many deletions."""


class Troubles:
    """Each event ends by itself, and takes back what it did where that is to end."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._random = world.random

    def any(self) -> Event:
        return self._random.choice(
            [
                self.crash,
                self.crash,
                self.lose_power,
                self.freeze,
                self.freeze,
                self.cut,
                self.part,
                self.storm,
                self.storm,
                self.fill,
                self._world.damage.flip,
                self.join,
                self.join,
                self.leave,
                self.impostor,
                self.reshape,
                self.create,
                self.retain,
                self.producer_dies,
            ]
        )

    async def crash(self) -> None:
        world = self._world
        if not world.living():
            return
        process = self._random.choice(world.living())
        world.tell(f"kill {process.id}")
        process.kill()
        await asyncio.sleep(self._random.choice([0.0, 2.0, 20.0]))
        if self._random.random() < 0.7:
            world.start(process.name)

    async def lose_power(self) -> None:
        """All brokers are of one machine: a disk may have back what it had deleted last."""
        world = self._world
        names = {x.name for x in world.living()}
        for process in world.living():
            process.kill()
        deleted = [*world.objects.deleted][-_NOT_SYNCED:]
        back = [x for x in deleted if self._random.random() < 0.5]
        world.tell(f"the power fails, and {len(back)} objects are back")
        for key in back:
            world.objects.come_back(key, world.loop.time())
        world.probes.hit(Probe.CAME_BACK, where=any(not x.startswith(WAL) for x in back))
        await asyncio.sleep(self._random.choice([0.5, 5.0]))
        for name in sorted(names):
            world.start(name)

    async def freeze(self) -> None:
        world = self._world
        if not world.living():
            return
        process = self._random.choice(world.living())
        seconds = self._random.choice([0.5, 3.0, 15.0, 40.0])
        world.tell(f"freeze {process.id} for {seconds} s")
        world.loop.freeze(process.id)
        await asyncio.sleep(seconds)
        if process.alive:
            world.tell(f"thaw {process.id}")
            world.woke(process)
            world.loop.thaw(process.id)

    async def cut(self) -> None:
        world = self._world
        if not world.living():
            return
        process = self._random.choice(world.living())
        world.tell(f"cut {process.id} off from the store")
        process.cut, was_placed = True, world.has_place(process)
        await asyncio.sleep(self._random.choice([1.0, 8.0, 30.0]))
        world.probes.hit(
            Probe.HEARD_AND_DEAD,
            where=was_placed and process.alive and not world.has_place(process),
        )
        process.cut = False
        world.tell(f"{process.id} reaches the store again")

    async def part(self) -> None:
        """Let two brokers reach each other in one direction only, or in none."""
        world, random = self._world, self._random
        if len(world.living()) < 2:
            return
        two = one, other = random.sample(world.living(), 2)
        parted = {(one.name, other.name)}
        if random.random() < 0.5:
            parted.add((other.name, one.name))
        world.tell(f"part {one.id} from {other.id}, in {len(parted)} directions")
        world.parted |= parted
        seconds = random.choice([2.0, 15.0, 40.0])
        kept = all(map(world.has_place, two)) and seconds > world.settings.expiration
        await asyncio.sleep(seconds)
        kept = kept and all(map(world.has_place, two))
        world.probes.hit(Probe.PARTED_AND_LIVED, where=kept)
        world.parted -= parted
        world.tell(f"{one.id} and {other.id} reach each other again")

    async def storm(self) -> None:
        random, world = self._random, self._world
        weather = world.weather
        weather.fail_before = random.choice([0.0, 0.05, 0.3])
        weather.fail_after = random.choice([0.0, 0.05, 0.3])
        weather.late = random.choice([0.0, 0.02, 0.1])
        weather.slow = random.choice([0.0, 0.05, 0.3])
        weather.list_late = random.choice([0.0, 3.0, 20.0])
        world.lost_answers = random.choice([0.0, 0.1, 0.4])
        world.tell(f"storm: {weather}, answers of brokers lost: {world.lost_answers}")
        await asyncio.sleep(random.uniform(3, 30))
        weather.clear()
        world.lost_answers = 0.0
        world.tell("the storm is over")

    async def fill(self) -> None:
        """Nothing can be written to the store, and all can be read."""
        self._world.tell("the store is full")
        self._world.weather.full = True
        await asyncio.sleep(self._random.choice([1.0, 5.0, 20.0]))
        self._world.weather.full = False
        self._world.tell("the store has room again")

    async def join(self) -> None:
        world = self._world
        names = {x.name for x in world.living()}
        free = [f"broker-{n}" for n in range(1, 6) if f"broker-{n}" not in names]
        if free:
            world.start(self._random.choice(free))

    async def leave(self) -> None:
        staying = [x for x in self._world.living() if not x.leaving]
        if len(staying) > 1 or (staying and self._random.random() < 0.5):
            process = self._random.choice(staying)
            self._world.tell(f"{process.id} is asked to leave")
            process.leaving = True

    async def impostor(self) -> None:
        """Start another under the name of one that lives."""
        if self._world.living():
            self._world.start(self._random.choice(self._world.living()).name)

    async def reshape(self) -> None:
        """Split or merge, one partition or all, by somebody with the store."""
        catalogs = await self._world.catalogs()
        known = self._world.guard.newest
        collection = self._random.choice(known.collections)
        opened = ranges_of(known, collection.name).open
        chosen = self._random.choice([None, *(x.id for x in opened[:4])])
        is_split = len(opened) < 24 and self._random.random() < 0.6
        change = catalogs.split if is_split else catalogs.merge
        try:
            await change(collection.name, chosen)
        except FeedError as error:
            self._world.tell(f"not {change.__name__}: {error}")
        else:
            self._world.tell(f"{change.__name__} {collection.name} {chosen or ''}")

    async def create(self) -> None:
        """Create one more collection, half of the time while an era ends."""
        if self._random.random() < 0.5:
            await self._era_ends()
        catalogs = await self._world.catalogs()
        there = len(self._world.guard.newest.collections)
        if there >= 3:
            return
        name = f"collection-{there + 1}"
        try:
            await catalogs.create(name, parts=self._random.choice([1, 3]))
        except FeedRefused as error:  # somebody else was quicker
            self._world.tell(f"not create: {error}")
        else:
            self._world.tell(f"create {name}")
            self._world.use(name)

    async def _era_ends(self) -> None:
        """Wait until one does, or for a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(30):
                while (era := self._world.guard.newest.era) is None or era.state != "ending":  # noqa: ASYNC110 - what is looked at sets no event
                    await asyncio.sleep(0.1)

    async def retain(self) -> None:
        """Keep less of a collection, or all of it from now on."""
        catalogs = await self._world.catalogs()
        collection = self._random.choice(self._world.guard.newest.collections)
        seconds, most = self._random.choice(
            [(10.0, None), (30.0, None), (None, 100), (None, 2_000), (20.0, 500), (None, None)]
        )
        await catalogs.retain(collection.name, seconds=seconds, bytes_=most)
        self._world.tell(f"keep {seconds} s and {most} bytes of {collection.name}")

    async def producer_dies(self) -> None:
        self._world.end_a_producer()

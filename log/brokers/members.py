"""Which brokers live: signs of life, which they send each other, and expiry by watching them.

A broker *pings* each other one that the catalog names: it sends its own sign of life, and gets
that one's as the answer. While all of them answer each other, none asks the store who lives. A
sign of life counts how often its broker has reached the store. The count of one that cannot
reach it stands still, so the others take it for dead, although it answers them.

Where a ping fails, both brokers write their signs of life into the store, ``brokers/<name>``,
and read each other's there. The sender does so because it gets no answer; the other one because
it gets none either, or because a heartbeat names it as ``unheard``. So while the network
between brokers is cut, they send more requests to the store, and none loses its partitions.

A broker is dead once its sign of life has not changed for the whole expiration, on the clock of
the broker that watches. One whose heartbeat was never seen to change may have died long ago,
and counts as living only if it has a place in the newest era.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf

import msgspec
from msgspec.structs import replace

from changefeed.feeds.errors import FeedError
from changefeed.leases.fleet import ExpiryWatch, ListedAt
from changefeed.log.catalog.catalog import Member
from changefeed.log.catalog.names import broker_key
from changefeed.log.core_settings import CoreSettings
from changefeed.log.decoding import Undecodable, from_json
from changefeed.log.stores.store import ObjectStore
from changefeed.runtime.calls import gather_or_cancel
from changefeed.runtime.errors import NameTaken
from changefeed.runtime.logs import get_logger

_log = get_logger(__name__)

_MIN_REST = 0.01


def name_taken(name: str) -> NameTaken:
    """Return the error for another living broker under our name."""
    return NameTaken(
        f"another broker named {name!r} is running in this cluster: give each its own --name, "
        f"and stop one of the two"
    )


class Heartbeat(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says of itself. ``beat`` counts how often it has reached the store.

    ``durable`` is the last number that it has acknowledged in ``era``, and ``lost`` the last
    era whose row was ended by somebody else. ``catalog`` is the newest that it knows, and
    ``unheard`` are the brokers that do not answer it.
    """

    name: str
    incarnation: str
    beat: int
    address: str = ""
    leaving: bool = False
    era: int = 0
    durable: int = 0
    lost: int = 0
    catalog: int = 0
    unheard: tuple[str, ...] = ()

    @property
    def start(self) -> tuple[str, str]:
        """Which broker it is of, and which start of it."""
        return self.name, self.incarnation

    @property
    def sign_of_life(self) -> tuple[str, int]:
        return self.incarnation, self.beat

    @property
    def stamp(self) -> None:
        """No wall clock shortens the wait: it would only be that of a restart."""
        return

    @property
    def age(self) -> tuple[int, int, int, bool]:
        """What never goes back, so that a heartbeat that comes late is known for older."""
        return self.beat, self.catalog, self.lost, self.leaving


Ping = Callable[[str, Heartbeat], Awaitable[Heartbeat]]
"""Send our heartbeat to the broker at an address, and return its own. Raises ``FeedError``
where no answer comes in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Who is there, as one broker sees it.

    ``quiet_for`` are the seconds from the last change to the last look. ``steady``: this broker
    has a place in the newest era, sees no other that may be about to come, and has seen all
    that live move a moment ago: so a change is likely to be the only one.
    """

    living: Mapping[str, Heartbeat]
    quiet_for: float
    steady: bool = False


class Members:
    """Signs of life: our own, and those of others. ``clock`` counts suspended time.

    ``hear_of`` is told which catalogs others know.
    """

    def __init__(
        self,
        store: ObjectStore,
        heartbeat: Heartbeat,
        settings: CoreSettings,
        clock: Callable[[], float],
        *,
        ping: Ping,
        hear_of: Callable[[int], None],
    ) -> None:
        self.heartbeat = heartbeat
        self._store = store
        self._clock = clock
        self._ping = ping
        self._hear_of = hear_of
        self._interval = settings.heartbeat
        self._settle = settings.settle
        self._watch: ExpiryWatch[str] = ExpiryWatch(settings.expiration)
        self.announced = 0
        """The newest catalog that the pings have named."""
        self.seen: dict[str, Heartbeat] = {}
        """The newest heartbeats of those that the catalog names, of the dead too."""
        self.dead = frozenset[str]()
        """Those whose heartbeats have not moved for the expiration."""
        self._named: Mapping[str, Member] = {}
        self._looked: Mapping[str, Heartbeat] = {}
        self._heard_at: dict[str, float] = {}
        self._missed_at = -inf
        self._reached_at = -inf
        self._first_seen: dict[tuple[str, str], tuple[int, float]] = {}
        self._moved: set[tuple[str, str]] = set()
        self._moved_at: dict[str, float] = {}
        self._expire_at: Mapping[str, float] = {}
        self._changed_at = clock()
        self._looked_at = self._changed_at
        self._was: frozenset[tuple[str, str, bool]] = frozenset()

    async def claim_name(self, there: Member | None) -> None:
        """Watch the one that the catalog says to have our name, for three intervals.

        Raise ``NameTaken`` if it answers, or its heartbeat in the store moves.
        """
        if there is None:
            return
        first = await self._stored(self.heartbeat.name, there)
        for _ in range(6):
            answer, _ = await asyncio.gather(
                self._answer(self.heartbeat.name, there), asyncio.sleep(self._interval / 2)
            )
            now = await self._stored(self.heartbeat.name, there)
            if answer is not None or (first and now and now.beat > first.beat):
                raise name_taken(self.heartbeat.name)

    def reached_store(self, at: float) -> None:
        """Note when the store has answered, by our clock: that is a sign of life."""
        if at > self._reached_at:
            self._reached_at = at
            self.heartbeat = replace(self.heartbeat, beat=self.heartbeat.beat + 1)

    async def write(self) -> None:
        """Show a sign of life in the store, for those who do not hear us."""
        heartbeat = replace(self.heartbeat, beat=self.heartbeat.beat + 1)
        await self._store.put(broker_key(heartbeat.name), msgspec.json.encode(heartbeat))
        self.heartbeat = replace(self.heartbeat, beat=max(self.heartbeat.beat, heartbeat.beat))

    def hears_all(self) -> bool:
        """Whether all that the catalog names hear each other, as far as this one knows."""
        return not self.heartbeat.unheard and (
            self._clock() - self._missed_at >= 3 * self._interval
        )

    def hear(self, heartbeat: Heartbeat) -> bool:
        """Take in what a broker says of itself; return whether that is news to act on."""
        self._hear_of(heartbeat.catalog)
        named = self._named.get(heartbeat.name)
        if named is None or named.incarnation != heartbeat.incarnation:
            return False
        before, heard_all, now = self.seen[heartbeat.name], self.hears_all(), self._clock()
        self._heard_at[heartbeat.name] = self._moved_at[heartbeat.name] = now
        self._moved.add(heartbeat.start)
        if self.heartbeat.name in heartbeat.unheard:
            self._missed_at = now
        self._take(heartbeat)
        return (
            _news([before]) != _news([self.seen[heartbeat.name]])
            or heard_all > self.hears_all()
        )

    def _take(self, heartbeat: Heartbeat) -> None:
        """Keep a heartbeat, unless a newer one is known. Answers may come late."""
        known = self.seen.get(heartbeat.name)
        if known and known.incarnation == heartbeat.incarnation and known.age <= heartbeat.age:
            self.seen[heartbeat.name] = heartbeat

    async def look(self, named: Mapping[str, Member]) -> bool:
        """Exchange heartbeats with those that the catalog names, and read those of the silent.

        Return whether there is news besides signs of life.
        """
        asked, self.announced = self._clock(), self.heartbeat.catalog
        self._keep_named({name: x for name, x in named.items() if name != self.heartbeat.name})
        unheard_before = self.heartbeat.unheard
        for answer in await gather_or_cancel(
            *(self._answer(name, x) for name, x in self._named.items())
        ):
            if answer is not None:
                self.hear(answer)
        silent = [x for x in self._named if self._heard_at.get(x, -inf) < asked]
        self.heartbeat = replace(self.heartbeat, unheard=tuple(silent))
        for heartbeat in await gather_or_cancel(
            *(self._stored(name, self._named[name]) for name in silent)
        ):
            if heartbeat is not None:
                self._take(heartbeat)
        return self._judge(asked) or self.heartbeat.unheard != unheard_before

    def _keep_named(self, named: Mapping[str, Member]) -> None:
        """Keep the heartbeats of those that are named: to be named is their first."""
        self._named, before, self.seen = named, self.seen, {}
        for name, x in named.items():
            known = before.get(name)
            if known is None or known.incarnation != x.incarnation:
                known = Heartbeat(
                    name=name, incarnation=x.incarnation, beat=0, address=x.address
                )
            self.seen[name] = known

    def _judge(self, asked: float) -> bool:
        """See which heartbeats have moved, and who is dead; return whether there is news."""
        answered, before, dead_before = self._clock(), self._looked, self.dead
        self._looked, self._looked_at = {**self.seen}, asked
        at = ListedAt(asked=asked, answered=answered, wall=0.0)
        since = self._watch.still_since(self._looked, at)
        self._expire_at = {x: y + self._watch.expiration for x, y in since.items()}
        self.dead = frozenset(x for x, y in self._expire_at.items() if y <= asked)
        assert self.dead <= self._named.keys(), f"{self.dead} are not all asked"
        for name, heartbeat in self._looked.items():
            start = heartbeat.start
            beat, _ = self._first_seen.setdefault(start, (heartbeat.beat, answered))
            if heartbeat.beat != beat:
                self._moved.add(start)
            if name not in before or before[name].sign_of_life != heartbeat.sign_of_life:
                self._moved_at[name] = answered
        news = _news(before.values()) != _news(self._looked.values())
        return news or self.dead != dead_before

    async def _answer(self, name: str, member: Member) -> Heartbeat | None:
        """Ping a broker; return its heartbeat, ``None`` if none comes in half an interval.

        What answers at the address may be another one by now.
        """
        try:
            async with asyncio.timeout(self._interval / 2):
                heartbeat = await self._ping(member.address, self.heartbeat)
        except (FeedError, TimeoutError) as error:
            if name in self._named and name not in self.heartbeat.unheard:
                _log.warning("broker.failed", operation="ping", broker=name, error=str(error))
            return None
        return heartbeat if heartbeat.start == (name, member.incarnation) else None

    async def _stored(self, name: str, member: Member) -> Heartbeat | None:
        """Read the heartbeat of a broker from the store, if that one has written any."""
        key = broker_key(name)
        data = await self._store.get(key)
        if data is None:
            return None
        try:
            heartbeat = from_json(data, Heartbeat)
        except Undecodable as error:
            _log.warning(
                "broker.failed", operation="read a heartbeat", key=key, error=str(error)
            )
            return None
        return heartbeat if heartbeat.start == (name, member.incarnation) else None

    def rest(self) -> float:
        """Return after how many seconds to look again.

        The interval, or less where somebody would be dead, or membership have stood still for
        long enough, before that.
        """
        now, settled = self._clock(), self._changed_at + self._settle
        moments = [now + self._interval, settled, *self._expire_at.values()]
        due = min(x for x in moments if x > self._looked_at)
        return max(due - now, _MIN_REST)

    def _is_uncertain(self, heartbeat: Heartbeat) -> bool:
        """Whether a heartbeat is too new to say if it moves: three intervals."""
        first = self._first_seen.get(heartbeat.start)
        return (
            heartbeat.start not in self._moved
            and first is not None
            and self._clock() - first[1] < 3 * self._interval
        )

    def membership(self, placed: Mapping[str, str]) -> Membership:
        """Return who is alive; ``placed`` are the incarnations in the newest era by name."""
        others = {
            name: heartbeat
            for name, heartbeat in self.seen.items()
            if name not in self.dead
            and (heartbeat.start in self._moved or placed.get(name) == heartbeat.incarnation)
        }
        assert self.heartbeat.name not in others, (
            f"{self.heartbeat.name!r} lives, or would not ask"
        )
        living = {**others, self.heartbeat.name: self.heartbeat}
        now = frozenset((x.name, x.incarnation, x.leaving) for x in living.values())
        uncertain = any(
            self._is_uncertain(x) and placed.get(x.name) != x.incarnation
            for x in self.seen.values()
        )
        if now != self._was or uncertain:
            self._was, self._changed_at = now, self._clock()
        assert self._changed_at <= self._clock(), f"a change at {self._changed_at} is to come"
        return Membership(
            living=living,
            quiet_for=max(0.0, self._looked_at - self._changed_at),
            steady=not uncertain
            and placed.get(self.heartbeat.name) == self.heartbeat.incarnation
            and all(map(self._moves, others)),
        )

    def _moves(self, name: str) -> bool:
        """Whether its heartbeat came, or was seen to move, within three intervals."""
        moved_at = self._moved_at.get(name)
        return moved_at is not None and self._looked_at - moved_at < 3 * self._interval

    async def leave(self) -> None:
        """Take our own sign of life away."""
        await self._store.delete([broker_key(self.heartbeat.name)])


def _news(heartbeats: Iterable[Heartbeat]) -> frozenset[tuple[str, str, bool, int]]:
    """Return what of heartbeats others have to act on."""
    return frozenset((x.name, x.incarnation, x.leaving, x.lost) for x in heartbeats)

"""Who is there: signs of life in the store, and expiry by watching them.

Each broker overwrites its own ``brokers/<name>``, and is named by the catalog, so nobody lists
them. A broker is dead once its sign has not moved for the whole expiration on the watcher's own
clock; wall clocks are for people. One that was never seen to move may have died long ago, and
does not count as living unless it has a place in the newest era.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from changefeed.feeds.brokers.core_settings import CoreSettings
from changefeed.feeds.brokers.decoding import Undecodable, from_json
from changefeed.feeds.brokers.names import broker_key
from changefeed.feeds.brokers.stores.store import ObjectStore
from changefeed.leases.expiry import ExpiryWatch, Moment
from changefeed.runtime.errors import UserError

_log = logging.getLogger(__name__)

_MIN_REST = 0.01


class NameTaken(UserError):
    """Another broker, with the same name, is alive."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name

    def __str__(self) -> str:
        return (
            f"another broker named {self.name!r} is running in this cluster: give each its "
            f"own --name, and stop one of the two"
        )


class Sign(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker says of itself. ``beat`` counts up.

    ``durable`` is the last number that it has acknowledged in ``era``, and ``lost`` the last
    era whose row was ended by somebody else. ``wall_us`` is for people.
    """

    name: str
    incarnation: str
    beat: int
    address: str = ""
    leaving: bool = False
    era: int = 0
    durable: int = 0
    lost: int = 0
    wall_us: int = 0

    @property
    def sign_of_life(self) -> tuple[str, int]:
        return self.incarnation, self.beat

    @property
    def stamp(self) -> None:
        """No wall clock shortens the wait: it would only be that of a restart."""
        return


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Who is there, as one broker sees it.

    ``quiet_for`` are the seconds from the last change to the last look. ``steady``: this broker
    has a place in the newest era, sees no other that may be about to come, and has seen all
    that live move a moment ago: so a change is likely to be the only one.
    """

    living: Mapping[str, Sign]
    quiet_for: float
    steady: bool = False


class Members:
    """Signs of life: our own, and those of others. ``clock`` counts suspended time."""

    def __init__(
        self, store: ObjectStore, sign: Sign, settings: CoreSettings, clock: Callable[[], float]
    ) -> None:
        self.sign = sign
        self._store = store
        self._clock = clock
        self._heartbeat = settings.heartbeat
        self._settle = settings.settle
        self._watch: ExpiryWatch[str] = ExpiryWatch(
            expiration=settings.expiration,
            max_clock_skew=0.0,
            renew_interval=settings.heartbeat,
        )
        self._shown = False
        self.seen: dict[str, Sign] = {}
        """The signs of the last look, those of the dead too."""
        self._first_seen: dict[tuple[str, str], tuple[int, float]] = {}
        self._moved: set[tuple[str, str]] = set()
        self._moved_at: dict[str, float] = {}
        self._expired: set[str] = set()
        self._changed_at = clock()
        self._looked_at = self._changed_at
        self._was: frozenset[tuple[str, str, bool]] = frozenset()

    async def claim_name(self) -> None:
        """Watch the sign of our own name for three heartbeats.

        Raise ``NameTaken`` if it moves.
        """
        key = broker_key(self.sign.name)
        first = await self._read(key)
        if first is None or first.incarnation == self.sign.incarnation:
            return
        for _ in range(6):
            await asyncio.sleep(self._heartbeat / 2)
            now = await self._read(key)
            if now is None:
                return
            if now.sign_of_life != first.sign_of_life:
                raise NameTaken(self.sign.name)

    async def beat(self, wall_us: int, **news: object) -> None:
        """Show a sign of life with what is new of ourselves; raise ``NameTaken``.

        The last one started under a name has it: so one that was frozen stops.
        """
        key = broker_key(self.sign.name)
        there = await self._read(key)
        if there is not None and there.incarnation != self.sign.incarnation and self._shown:
            raise NameTaken(self.sign.name)
        self.sign = msgspec.structs.replace(
            self.sign, beat=self.sign.beat + 1, wall_us=wall_us, **news
        )
        await self._store.put(key, msgspec.json.encode(self.sign))
        self._shown = True

    async def look(self, names: Iterable[str]) -> bool:
        """Read the signs of these; return whether there is news besides heartbeats."""
        asked = self._clock()
        found = await asyncio.gather(*(self._read(broker_key(x)) for x in names))
        signs = {x.name: x for x in found if x is not None}
        answered = self._clock()
        before, expired_before = self.seen, self._expired
        self.seen = signs
        self._looked_at = asked
        self._expired = self._watch.expired(
            signs, Moment(asked=asked, answered=answered, wall=0.0)
        )
        for name, sign in signs.items():
            start = (name, sign.incarnation)
            beat, _ = self._first_seen.setdefault(start, (sign.beat, answered))
            if sign.beat != beat:
                self._moved.add(start)
            if name not in before or before[name].sign_of_life != sign.sign_of_life:
                self._moved_at[name] = answered
        return self._expired != expired_before or _news(before) != _news(signs)

    def rest(self) -> float:
        """Return after how many seconds to look again.

        A heartbeat, or less where somebody would be dead, or membership have stood still for
        long enough, before that.
        """
        now, settled = self._clock(), self._changed_at + self._settle
        moments = [now + self._heartbeat, self._watch.next_expiry(), settled]
        due = min(x for x in moments if x is not None and x > self._looked_at)
        return max(due - now, _MIN_REST)

    def _is_uncertain(self, sign: Sign) -> bool:
        """Whether a sign is too new to say if it moves: three heartbeats."""
        key = (sign.name, sign.incarnation)
        first = self._first_seen.get(key)
        return (
            sign.name != self.sign.name
            and key not in self._moved
            and first is not None
            and self._clock() - first[1] < 3 * self._heartbeat
        )

    def membership(self, placed: Mapping[str, str]) -> Membership:
        """Return who is alive; ``placed`` are the incarnations in the newest era by name."""
        living = {
            name: sign
            for name, sign in {**self.seen, self.sign.name: self.sign}.items()
            if name == self.sign.name
            or (
                name not in self._expired
                and (
                    (name, sign.incarnation) in self._moved
                    or placed.get(name) == sign.incarnation
                )
            )
        }
        assert self.sign.name in living, f"{self.sign.name!r} lives, or would not ask"
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
            and placed.get(self.sign.name) == self.sign.incarnation
            and all(self._moves(x) for x in living if x != self.sign.name),
        )

    def _moves(self, name: str) -> bool:
        """Whether a sign was seen to move within the last three heartbeats."""
        moved_at = self._moved_at.get(name)
        return moved_at is not None and self._looked_at - moved_at < 3 * self._heartbeat

    async def leave(self) -> None:
        """Take our own sign of life away."""
        await self._store.delete([broker_key(self.sign.name)])

    def dead(self) -> frozenset[str]:
        """Return those whose signs have not moved for the expiration."""
        return frozenset(self._expired) - {self.sign.name}

    async def _read(self, key: str) -> Sign | None:
        data = await self._store.get(key)
        if data is None:
            return None
        try:
            return from_json(data, Sign)
        except Undecodable as error:
            _log.warning(
                "broker.failed",
                extra={"operation": "read a sign of life", "key": key, "error": str(error)},
            )
            return None


def _news(signs: Mapping[str, Sign]) -> frozenset[tuple[str, str, bool, int]]:
    """Return what of signs others have to act on."""
    return frozenset((x.name, x.incarnation, x.leaving, x.lost) for x in signs.values())

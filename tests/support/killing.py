"""The rules about changes that kill, driven at random: leases as they are, hosts that only
pretend.

Hosts die of a change that they deliver, or are killed from outside, alone or all of them up to
three times in a row. Checked: every change is handled or put aside, in order; what kills is
put aside after six deaths at the most; nothing else is. Under care a call fails now and then,
whatever it is about.
"""

from dataclasses import dataclass, field
from random import Random

from msgspec.structs import replace

from changefeed.feeds.feed import FeedRange, Position, RangeId
from changefeed.leases.lease import HostName, Incarnation, Lease

BATCH, AHEAD, LIMIT, FAILS = 5, 20, 6, 0.3


@dataclass
class Process:
    """One incarnation of a host."""

    name: str
    start: int = 0
    alive: bool = True

    @property
    def incarnation(self) -> Incarnation:
        return Incarnation(f"{self.name}-{self.start}")


@dataclass
class Range:
    """A range, its lease, and what has become of its changes, which are numbered from 1."""

    lease: Lease
    length: int
    killers: set[int]
    aside: set[int] = field(default_factory=set)
    handled: set[int] = field(default_factory=set)
    deaths: dict[int, int] = field(default_factory=dict)

    @property
    def position(self) -> int:
        return int(self.lease.position or 0)

    @property
    def left(self) -> bool:
        return self.position < self.length


@dataclass
class Story:
    """``alone`` keeps to one change under care at a time in a process; ``ahead`` is how many
    changes behind its checkpoint a dead owner may have read.
    """

    rng: Random
    alone: bool = True
    ahead: int = AHEAD
    ranges: list[Range] = field(default_factory=list)
    hosts: list[Process] = field(default_factory=list)
    storms: int = 0
    kills: int = 0

    def play(self) -> None:
        rng = self.rng
        length = rng.randint(20, 200)
        for n in range(rng.randint(1, 8)):
            lease = Lease(range=FeedRange(id=RangeId(f"r{n}"))).advanced_to(Position("0"))
            killers = {s for s in range(1, length + 1) if rng.random() < 0.01}
            self.ranges.append(Range(lease, length, killers))
        self.hosts = [Process(f"h{n}") for n in range(rng.randint(1, 4))]
        storms = sorted(rng.sample(range(20, 2000, 150), rng.randint(0, 5)))
        step = 0
        while any(x.left for x in self.ranges):
            step += 1
            assert step < 50_000, "it stands still"
            if storms and step >= storms[0]:
                storms.pop(0)
                self._storm()
            self._share()
            for n, host in enumerate(self.hosts):
                if not host.alive:  # a supervisor starts it again
                    self.hosts[n] = Process(host.name, host.start + 1)
                elif rng.random() < 0.7:
                    self._turn(host)
        for x in self.ranges:
            assert x.handled | x.aside == set(range(1, x.length + 1)), "a change is lost"

    def _storm(self) -> None:
        """Kill all hosts, up to three times in a row; each may get some steps between."""
        self.storms += 1
        for _ in range(self.rng.randint(1, 3)):
            for host in self.hosts:
                for _ in range(self.rng.choice((0, 0, 1, 2))):
                    if host.alive:
                        self._turn(host)
                if host.alive and self.rng.random() < 0.9:
                    for x in self._careful(host)[: 1 if self.alone else None]:
                        self._note(x)
                self.kills += 1
                host.alive = False
            self.hosts = [Process(x.name, x.start + 1) for x in self.hosts]
            self._share()  # nobody takes over faster than a lease expires

    def _share(self) -> None:
        living = {x.incarnation: x for x in self.hosts if x.alive}
        for x in self.ranges:
            if living and x.lease.incarnation not in living:
                loads = {n: sum(y.lease.incarnation == n for y in self.ranges) for n in living}
                host = living[min(living, key=lambda n: loads[n])]
                name = HostName(host.name)
                deaths = x.lease.deaths_after(host.incarnation, read=self.ahead, ended={})
                x.lease = x.lease.taken_by(name, host.incarnation, deaths)

    def _of(self, host: Process) -> list[Range]:
        return [x for x in self.ranges if x.lease.incarnation == host.incarnation and x.left]

    def _careful(self, host: Process) -> list[Range]:
        return [x for x in self._of(host) if x.lease.deaths.care]

    def _turn(self, host: Process) -> None:
        """Let each range deliver once, of those under care one; where not ``alone``, each of
        them has its note, whichever kills.
        """
        for x in [x for x in self._of(host) if not x.lease.deaths.care]:
            batch = list(range(x.position + 1, min(x.position + BATCH, x.length) + 1))
            self._deliver(host, x, batch)
            if not host.alive:
                return
            self._reach(x, batch[-1])
        careful = self._careful(host)
        self.rng.shuffle(careful)
        at_once = careful[:1] if self.alone else careful
        blamed = [x for x in at_once if x.lease.deaths.blames(x.position + 1)]
        for x in blamed:
            self._put_aside(x)
        delivered = [x for x in at_once if x not in blamed]
        for x in delivered:
            self._note(x)
        if self.rng.random() < FAILS:
            for x in delivered:
                x.lease = replace(x.lease, deaths=x.lease.deaths.returned(0))
            return
        for x in delivered:
            self._deliver(host, x, [x.position + 1])
        if host.alive:
            for x in delivered:
                self._reach(x, x.position + 1)

    def _note(self, x: Range) -> None:
        deaths = x.lease.deaths
        if deaths.noted is None:
            x.lease = replace(x.lease, deaths=deaths.noting(x.position + 1))

    def _reach(self, x: Range, position: int) -> None:
        deaths = x.lease.deaths.returned(1).progressed()
        x.lease = replace(x.lease, deaths=deaths).advanced_to(Position(str(position)))

    def _deliver(self, host: Process, x: Range, changes: list[int]) -> None:
        for n in changes:
            if host.alive and n in x.killers:
                x.deaths[n] = x.deaths.get(n, 0) + 1
                assert x.deaths[n] <= LIMIT, f"{n} killed {x.deaths[n]} processes"
                host.alive = False
            if host.alive:
                x.handled.add(n)

    def _put_aside(self, x: Range) -> None:
        n = x.position + 1
        assert n in x.killers, f"{n} was put aside, and kills nobody"
        x.aside.add(n)
        self._note(x)
        self._reach(x, n)

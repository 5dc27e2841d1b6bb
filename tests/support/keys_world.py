"""One range under random failures, outages, crashes and handovers: what its keys and its
progress make of them. No observer and no host: the objects that decide are driven by hand.

Checked: order by key; nothing lost; nothing put aside but what always fails, or one change on
suspicion where there was nothing to compare it with; nothing handled twice across an orderly
handover, but for what is known to be uncovered where many keys wait; never more in hand than
there is room for.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from changefeed.feeds.feed import Change, Position, RangeId
from changefeed.host.progress import Progress
from changefeed.leases.checkpoint import MAX_HOLES, Checkpoint, hash_of
from changefeed.observers.errors import AttemptFailed
from changefeed.observers.judge import Judge, Successes, Verdict
from changefeed.observers.key_scheduler import Batch, KeyScheduler
from changefeed.observers.retry import GrowingDelays, RetrySettings
from tests.support import make

ATTEMPTS, PAGE = 4, 20
R1 = RangeId("r1")
NO = AttemptFailed("ValueError", "no")


class World:
    """The feed, the behaviour of its observer, and what has really happened."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.now = rng, 0.0
        self.changes: list[Change] = []
        self._before: dict[int, int] = {}
        self._last = dict[str, int]()
        keys = rng.choice([rng.randint(1, 12), rng.randint(12, 200)])
        self.room = rng.choice([MAX_HOLES - 4, MAX_HOLES - 4, 3 * MAX_HOLES])
        for _ in range(rng.randint(50, 400)):
            self.append(f"k{rng.randrange(keys)}")
        always = rng.choice([0.01, 0.02, 0.1, 0.1 if self.room < MAX_HOLES else 0.5])
        self.always = {x.sequence for x in self.changes if rng.random() < always}
        self.sometimes = {
            x.sequence: rng.randint(1, ATTEMPTS - 2)
            for x in self.changes
            if rng.random() < 0.05
        }
        starts = [rng.uniform(0, 300) for _ in range(rng.randint(0, 2))]
        self.outages = [(at, at + rng.uniform(5, 200)) for at in starts]
        self.handled = Counter[int]()
        self.letters = set[int]()
        self.away = rng.choice([0.0, 0.0, 0.0, 0.3])  # the dead letters, of so many calls
        self.refused = 0

    def append(self, key: str) -> None:
        change = make.change(len(self.changes) + 1, key=key)
        self._before[change.sequence] = self._last.get(key, 0)
        self._last[key] = change.sequence
        self.changes.append(change)

    def passes(self, changes: Sequence[Change]) -> bool:
        """Whether the observer returns; a batch fails whole."""
        for x in changes:
            if any(a <= self.now < b for a, b in self.outages) or x.sequence in self.always:
                return False
            if self.sometimes.get(x.sequence, 0):
                self.sometimes[x.sequence] -= 1
                return False
        return True

    def handle(self, change: Change) -> None:
        self._check_turn(change)
        self.handled[change.sequence] += 1

    def put_aside(self, change: Change) -> None:
        self._check_turn(change)
        self.letters.add(change.sequence)

    def _check_turn(self, change: Change) -> None:
        before = self._before[change.sequence]
        done = not before or before in self.handled or before in self.letters
        assert done, f"{change.sequence} comes before {before} of its key"


@dataclass
class Owner:
    """What a worker does with one range, with several observers at once."""

    world: World
    keys: KeyScheduler
    progress: Progress
    observers: int
    read_to: int
    in_hand: dict[int, Batch] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    suspicions: int = 0

    @classmethod
    def of(
        cls, world: World, start: Checkpoint, successes: Successes, observers: int
    ) -> "Owner":
        keys = KeyScheduler(
            Judge(
                R1, ATTEMPTS, GrowingDelays(RetrySettings(max_delay=30), world.rng), successes
            ),
            random=world.rng,
            observers=observers,
            largest=PAGE,
        )
        progress = Progress(start, lambda x: Position(str(x.sequence)))
        return cls(world, keys, progress, observers, int(start.position))

    @property
    def is_over(self) -> bool:
        return self.read_to == len(self.world.changes) and not self.progress.unacknowledged

    def step(self) -> None:
        self._read()
        for n in set(range(self.observers)) - self.in_hand.keys():
            batch = self.keys.next(self.world.now, n)
            if batch is not None:
                self.in_hand[n] = batch
        held = self.keys.held + sum(len(x.changes) for x in self.in_hand.values())
        assert held == self.progress.unacknowledged, f"{held} are held"
        assert held <= self.world.room
        if self.in_hand:
            self.world.now += 0.05
            self._finish(self.in_hand.pop(self.world.rng.choice(list(self.in_hand))))
        else:
            self.world.now += 0.5

    def _read(self) -> None:
        room = min(self.world.room - self.progress.unacknowledged, PAGE)
        page = self.world.changes[self.read_to : self.read_to + room]
        if page and not self.keys.has_ready:
            self.read_to = page[-1].sequence
            fresh = self.progress.read(page, Position(str(self.read_to)))
            self.keys.add(fresh, self.progress.failures(fresh))

    def _finish(self, batch: Batch) -> None:
        if self.world.passes(batch.changes):
            for x in batch.changes:
                self.world.handle(x)
            self._settle(batch)
            self.keys.done(batch)
            return
        why = self.keys.failed(batch, batch.changes, self.world.now, NO)
        if why is not None and why.verdict.puts_aside:
            change = why.change
            always = change.sequence in self.world.always
            assert always or why.verdict is Verdict.SUSPECTED, f"{change.sequence} would pass"
            if self.world.rng.random() < self.world.away:
                self.world.refused += 1
                self.keys.put_back(change)
                return
            self.suspicions += not always
            self.world.put_aside(change)
            self._settle(batch)
            self.keys.put_aside(change)

    def _settle(self, batch: Batch) -> None:
        assert self.progress.done(batch.changes) == len(batch.changes)
        self.settled |= {x.sequence for x in batch.changes}

    def finish(self) -> None:
        """Hand over nothing more than what is in the observers' hands or ready."""
        self.keys.stop()
        while self.in_hand or (self.keys.judge.outage is None and self.keys.has_ready):
            for n in set(range(self.observers)) - self.in_hand.keys():
                batch = self.keys.next(self.world.now, n)
                if batch is not None:
                    self.in_hand[n] = batch
            self.world.now += 0.05
            self._finish(self.in_hand.pop(self.world.rng.choice(list(self.in_hand))))

    def checkpoint(self) -> Checkpoint:
        found = self.progress.checkpoint(self.keys.failures())
        assert Checkpoint.of_text(found.text) == found
        return found


@dataclass
class Story:
    """What has happened in one run."""

    handovers: int = 0
    with_holes: int = 0
    uncovered: int = 0
    crashes: int = 0
    letters: int = 0
    refused: int = 0
    again: int = 0
    suspicions: int = 0
    stands: int = 0


def done_by(kept: Checkpoint, changes: Sequence[Change]) -> set[int]:
    """Return what nobody who begins at a checkpoint is handed."""
    holes = {x.key: x.sequence for x in kept.holes}
    high = int(kept.position) if kept.high is None else kept.high
    return {
        x.sequence
        for x in changes
        if x.sequence <= int(kept.position) or x.sequence < holes.get(hash_of(x.key), high + 1)
    }


def run(seed: int) -> Story:
    """Raise ``AssertionError`` where a rule is broken."""
    rng = Random(seed)
    world, successes, story = World(rng), Successes(), Story()
    observers = rng.choice([1, 1, 3])
    kept = Checkpoint(Position("0"))
    owner, known = Owner.of(world, kept, successes, observers), set[int]()
    for turn in range(8_000 if world.room < MAX_HOLES else 16_000):
        if rng.random() < 0.3:
            kept = owner.checkpoint()
        chance = rng.random()
        if chance < 0.004:
            owner.finish()
            kept = owner.checkpoint()
            known |= owner.settled
            again = known - done_by(kept, world.changes)
            assert not again or len(kept.holes) == MAX_HOLES, f"{sorted(again)[:3]} come again"
            uncovered = len(again & owner.settled)
            assert uncovered == owner.progress.uncovered, f"{uncovered} are not covered"
            story.uncovered += bool(uncovered)
            known -= again
            story.handovers += 1
            story.with_holes += bool(kept.holes)
            story.suspicions += owner.suspicions
            owner = Owner.of(world, kept, successes, observers)
        elif chance < 0.006:
            story.crashes += 1
            story.suspicions += owner.suspicions
            owner, known = (
                Owner.of(world, kept, successes, observers),
                done_by(kept, world.changes),
            )
        elif owner.is_over:
            break
        elif (
            turn % 50 == 0 and turn < 5_000
        ):  # a quiet feed: a change of a new key now and then
            world.append(f"late{turn}")
        owner.step()
    done = world.handled.keys() | world.letters
    missing = [x.sequence for x in world.changes if x.sequence not in done]
    first = {x.key: x.sequence for x in reversed(owner.progress.open)}
    story.stands = bool(missing)
    assert set(first.values()) <= world.always, f"{missing[:3]} are never handled"
    assert not missing or first, f"{missing[:3]} are lost"
    story.letters, story.refused = len(world.letters), world.refused
    story.again = sum(n - 1 for n in world.handled.values())
    return story

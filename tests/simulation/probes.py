"""The places where bugs live: each probe counts how often a story came there.

A seed that holds shows little if it never met the case that a rule is for. The pinned seeds
must hit every probe; where one of them does no more, the mixture of worlds is to be changed.
A probe is hit by what is seen at the borders of the product: writes to its stores, calls of
observers, answers on their way, processes that stop and go on.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Final


class Probe(StrEnum):
    """What hosts came through."""

    # leases change hands
    HANDED_OVER = "an owner handed its lease over"
    ROBBED = "an owner that did not answer a request was robbed"
    STOLEN_AT_ONCE = "a lease was stolen at once"
    WITHDRAWN = "a steal was withdrawn"
    REQUEST_DROPPED = "an owner dropped the request of another host"
    EXPIRED = "an expired lease was taken"
    EXPIRED_BY_STAMP = "a stamp that stood still shortened the wait for an owner"
    OWN_AGAIN = "a host that started again took its own lease back"
    ABSENT_OWNER = "a lease that was edited to a host that is not there was taken"
    CLAIM_LOST = "two hosts went for one lease, and one lost"
    CLAIM_WITHOUT_ANSWER = "a claim without an answer was ours"
    NEIGHBOUR_STOLE = "a host of another kind stole a lease of ours"
    STOLEN_FROM_NEIGHBOUR = "a lease of a host of another kind was taken"

    # what meets a handoff
    HANDOFF_MET_SPLIT = "a handoff met a split"
    HANDOFF_MET_PAUSE = "a paused range met a handoff"
    HANDOFF_MET_CHECKPOINT = "a checkpoint was written while its lease was asked for"
    HANDOFF_MET_DEATH = "an owner died while its lease was asked for"
    ASKING_HOST_DIED = "a host died that had asked for a lease"

    # checkpoints
    CHECKPOINT_REFUSED = "a checkpoint was refused to a lost owner"
    CHECKPOINT_WITHOUT_ANSWER = "a checkpoint's answer was lost and found to be ours"
    CHECKPOINT_CLAIMED = "a checkpoint was claimed from the owner before"
    CHECKPOINT_LOST = "a checkpoint that was lost was put back"
    CHECKPOINT_MOVED_BACK = "a person moved a checkpoint back"

    HANDED_OVER_HOLES = "a lease with holes in its checkpoint changed hands"
    HOLE_MET_SPLIT = "a hole met a split"

    # what kills, and what fails
    KILLER_ASIDE = "a change that kills its process was put aside"
    KILLER_PAUSED = "a range was paused at a change that kills its process"
    STORM_OF_KILLS = "a fleet was killed three times in a row, with a change noted"
    SUSPECT_CLEARED = "a change that its owners died with killed nobody"
    NOTE_MET_STEAL = "a lease was asked for while a change was noted"
    CARE_ENDED = "the care for a range ended"
    OUTAGE = "an outage counted once"

    # ranges come and go
    CHILD_WAITED = "a child waited for another range that held its keys"
    MERGED = "a range began that goes on from two"
    ENDED_WHILE_FROZEN = "a range ended while its reader was frozen"
    SPLIT_BY_HOST = "a host split or merged a range that the feed has not"
    SPLIT_BY_HAND = "a person split or merged a range that the feed has not"
    SPLIT_REFUSED = "a split or merge was refused to a person"
    PART_CAME_BACK = "a part came back under the name of one that was over"
    TOMBSTONE_DELETED = "a tombstone was deleted"
    DELETED_BY_HAND = "a lease that was deleted by hand was created again"
    MADE_AGAIN_AT_START = "a lease that was deleted by hand began again where its fleet did"
    SPLIT_MET_START = "a fleet that starts at now began in a range that had just ended"
    BEGAN_IN_THE_PAST = "a fleet that starts at a time began in a range that had ended"
    CREATED_LATE = "a lease was created long after its creation was given up"
    OWNERSHIP_FORGOTTEN = "all ownership was forgotten while ranges were read"

    # ranges that stop
    PAUSED_BY_HOST = "a host paused a range that it cannot read on"
    FEED_REFUSED = "the feed refused a range to its owner"
    RESUMED = "a paused range was resumed"
    STOPPED_RANGE = "a range stopped at a change that its observer failed on"
    WITHOUT_MEMORY = "an observer ran out of memory, and its host ended"
    PUT_ASIDE = "a change was put aside"
    LETTER_REFUSED = "the dead letters did not take a change"
    FAILED_AMID_BATCH = "an observer failed behind what it had done of its batch"
    CALL_CUT_OFF = "an observer that hung was cut off"
    LATE_ACKNOWLEDGEMENT = "an acknowledgement came after the observer was closed"

    # processes
    WOKE_BEHIND_FENCE = "a frozen host woke behind its fence"
    WOKE_ROBBED = "a frozen host woke, and its lease was another's"
    WOKE_IN_CALL = "a frozen host woke in a call of its observer"
    CLOCK_STOOD_STILL = "an owner's clock stood still while its machine slept"
    CUT_OFF_TOO_LONG = "an owner got no answers for longer than its leases last"
    KILLED_IN_CALL = "a host was killed in a call of its observer"
    CALL_OUTLIVED_LEASE = "a call of an observer outlived its lease"
    LANES = "one process made two calls about one range at once"
    REPEATED = "a change was delivered again"
    WRITE_OF_THE_STILL = "a write of a killed or frozen host came in"
    NAME_TAKEN = "a host found its name taken"
    STOP_CUT_SHORT = "a stop took too long and was cut short"
    MEMBER_DELETED = "a member record was deleted under a living host"

    # answers on their way
    DIFFERENT_LISTS = "two hosts planned from different lists"
    TORN_LISTING = "a listing was torn"
    MEMBERS_STOOD_STILL = "a host saw the members of the fleet as they were"
    SECRET_WRONG = "a host was refused as its secret was wrong, and went on"
    STALE_READ = "a replica that lags answered a read"
    MET_ITSELF = "a write that was sent twice met itself"
    GAVE_UP = "a client cancelled a call that was served"
    TRANSACTION_BROKEN = "a transaction on a file broke off"


class BrokerProbe(StrEnum):
    """What brokers, their producers and their readers came through."""

    # eras
    MASTER_KILLED = "the master was killed"
    TWO_MASTERS = "two brokers took themselves for the master"
    KILLED_WITH_RECORDS = "a broker was killed with records that were not written"
    WOKE_IN_OLD_ERA = "a frozen broker woke in an era that was over"
    ENDED_BY_OTHERS = "an era ended while a broker of it was frozen or dead"
    EMPTY_ROW = "a row was sealed before it had an object"
    NAME_TAKEN = "a broker found its name taken"
    COULD_NOT_START = "a broker could not start, as its store did not answer"
    LEFT = "a broker left"
    LAST_LEFT = "the last broker left"
    RESHAPED = "a collection was split or merged"
    CREATED_IN_BETWEEN = "a collection was created while an era ended"

    # signs of life
    TOLD = "a broker was told of a newer catalog by another"
    SIGNED = "a broker showed in the store that it lives"
    PARTED_AND_LIVED = "two brokers did not hear each other for long, and kept their places"
    HEARD_AND_DEAD = "a broker that others heard lost its place, as it did not reach the store"

    # the store
    CATALOG_LOST = "two went for one catalog, and one lost"
    FENCED = "a write found its place in the row taken"
    WRITE_WITHOUT_ANSWER = "a write without an answer was ours"
    WRITE_CAME_LATE = "a write came in long after it was given up"
    LATE_AND_FENCED = "a write came in late, and its place was taken"
    NO_ROOM = "the store had no room for a write"
    LISTED_LATE = "a listing left out what was there"
    CUT_OFF = "a broker was cut off from the store"
    DAMAGE_SEEN = "a reader was told of damage"
    DAMAGED_AND_DELETED = "a damaged object was deleted"

    # producers
    SENT_AGAIN = "a request that was stored was sent again"
    MOVED_STORED = "a producer learned after an era that a request was stored"
    MOVED_NOT_STORED = "a producer learned after an era that a request was not stored"
    GAP = "a request came before the one that it follows"
    MOVING = "a request came while an era ended"
    ELSEWHERE = "a request came to a broker that had no place for it"
    BUSY = "a broker that had too much to write refused a batch"
    BATCH_REFUSED = "a batch that was wrong was refused"
    BEHIND_CLIENT = "a client knew of a newer catalog than the broker that it asked"
    PRODUCER_DIED = "a producer died with records on their way"
    UNKNOWN_STORED = "a record of unknown fate was stored"
    UNKNOWN_NOT_STORED = "a record of unknown fate was not stored"

    # what is kept
    CUT = "retention took records"
    TAKEN_BACK = "what was to be taken by retention was kept after all"
    ERA_GONE = "retention took all of an era"
    LOSS_LEARNED = "a reader learned what retention took"
    ROW_DELETED = "an object of a row was deleted, as segments have its records"
    SEGMENT_DELETED = "a segment was deleted"
    CAME_BACK = "a run or a segment that was deleted was back after a loss of power"


ALL_PROBES: Final[Sequence[str]] = (*Probe, *BrokerProbe)


class Probes(Counter[str]):
    def hit(self, probe: str, *, where: bool = True) -> None:
        """Count a probe, where it holds."""
        if where:
            self[probe] += 1

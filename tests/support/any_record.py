"""Any lease, checkpoint and member that a store may be given, as strategies of Hypothesis."""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from changefeed.feeds.feed import Child, FeedRange
from changefeed.leases.checkpoint import MAX_HOLES, Checkpoint, Hole, hash_of
from changefeed.leases.deaths import Deaths
from changefeed.leases.health import RangeHealth, WaitingKey
from changefeed.leases.lease import KeptCheckpoint, KeyRequest, Lease, Member, RangeEnd

_TEXT = st.text(max_size=20)
_COUNTS = st.integers(min_value=0, max_value=2**53)
_STAMPS = st.none() | st.floats(min_value=0, max_value=1e11)
_HEALTHS = st.builds(
    RangeHealth,
    last_progress=_STAMPS,
    failing_since=_STAMPS,
    stuck_since=_STAMPS,
    last_error=st.none() | _TEXT,
    waiting=_COUNTS,
    oldest=st.none()
    | st.builds(
        WaitingKey,
        key=_TEXT,
        sequence=_COUNTS,
        tries=_COUNTS,
        error=_TEXT,
        next_try=_STAMPS,
    ),
)
_RANGES = st.builds(
    FeedRange,
    id=_TEXT,
    low=_TEXT,
    high=_TEXT,
    parents=st.lists(_TEXT, max_size=3).map(tuple),
    of=st.none() | _TEXT,
    generation=st.tuples(_COUNTS, _COUNTS),
)
_ENDS = st.builds(
    RangeEnd,
    children=st.lists(st.builds(Child, range=_RANGES, start=_TEXT), max_size=3).map(tuple),
    by=st.sampled_from(["feed", "split", "merge"]),
)
_HOLES = st.lists(
    st.builds(Hole, _TEXT.map(hash_of), _COUNTS, st.integers(0, 100)), max_size=MAX_HOLES
)
CHECKPOINT = st.builds(Checkpoint, _TEXT) | st.builds(
    Checkpoint, _TEXT, _COUNTS, _HOLES.map(tuple)
)
LEASES = st.builds(
    Lease,
    range=_RANGES,
    owner=st.none() | _TEXT,
    incarnation=st.none() | _TEXT,
    epoch=_COUNTS,
    renewals=_COUNTS,
    next_owner=st.none() | _TEXT,
    key_request=st.none()
    | st.builds(
        KeyRequest,
        id=_TEXT,
        key=_TEXT,
        aside=st.booleans(),
        answer=st.sampled_from(["", "taken", "not waiting", "no dead letters"]),
    ),
    end=st.none() | _ENDS,
    paused=st.none() | _TEXT,
    health=_HEALTHS,
    deaths=st.builds(Deaths, count=_COUNTS, care=_COUNTS, noted=_COUNTS, cause=_TEXT),
    load=st.none() | st.floats(min_value=0, max_value=1e3),
    cooling=st.booleans(),
    stamp=_STAMPS,
    checkpoint=CHECKPOINT,
    checkpoint_epoch=_COUNTS,
    reset_epoch=_COUNTS,
    write_id=st.none() | _TEXT,
    version=st.just(""),
)
CHECKPOINTS = st.builds(
    KeptCheckpoint,
    range_id=_TEXT,
    checkpoint=CHECKPOINT,
    epoch=_COUNTS,
    write_id=st.none() | _TEXT,
    version=st.just(""),
)
MEMBERS = st.builds(
    Member,
    name=_TEXT,
    incarnation=_TEXT,
    heartbeats=_COUNTS,
    stopping=st.booleans(),
    stamp=_STAMPS,
    address=_TEXT,
    software=_TEXT,
    max_ranges=st.none() | _COUNTS,
    version=st.just(""),
)
any_record = settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
"""For tests whose examples share one store, and clean up behind themselves."""

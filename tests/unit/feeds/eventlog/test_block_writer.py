from hypothesis import given
from hypothesis import strategies as st

from changefeed.feeds.eventlog.block_format import Layout, changes_of, joined
from changefeed.feeds.eventlog.block_writer import Addition, Tail, fill
from changefeed.feeds.eventlog.records import (
    BLOCK_BYTES,
    BLOCK_RECORDS,
    Encoded,
    Record,
    encode_record,
)
from changefeed.feeds.feed import RangeId

LEAST = encode_record(Record(key="k"), 0)[-1]
SIZES = st.integers(0, 5) | st.just(BLOCK_BYTES // 3) | st.just(2 * BLOCK_BYTES)
BATCHES = st.lists(
    st.lists(st.tuples(st.integers(-5, 50), SIZES), max_size=600), min_size=1, max_size=5
)


def record(size: int, time_us: int = 0) -> Encoded:
    """A record with a body of so many bytes."""
    return encode_record(Record(key="k", body=b"x" * size, committed_us=time_us), 0)


@given(batches=BATCHES)
def test_blocks_hold_every_record_in_order_and_know_what_they_hold(
    batches: list[list[tuple[int, int]]],
) -> None:
    tail = Tail(partition=7)
    blocks: dict[int, Addition] = {}
    contents: dict[int, list[Layout]] = {}
    for batch in batches:
        tail, additions = fill(tail, [record(size, time) for time, size in batch])
        for x in additions:
            blocks[x.first] = x
            contents.setdefault(x.first, []).append(x.data)

    records = [(time, size) for batch in batches for time, size in batch]
    assert tail.last == len(records)
    last = 0
    for first, block in sorted(blocks.items()):
        assert block.partition == 7
        assert first == last + 1
        last = block.last
        owned = records[first - 1 : last]
        content = joined(contents[first])
        changes = changes_of(RangeId("r"), first, len(owned), content)
        assert [(x.committed_us, len(x.body)) for x in changes] == owned
        assert sum(map(len, content)) == sum(LEAST + size for _, size in owned)
        assert block.latest_us == max(time for time, _ in records[:last])
        assert block.stored == sum(LEAST + size for _, size in records[:last])
        assert len(owned) <= BLOCK_RECORDS
        assert sum(LEAST + size for _, size in owned[:-1]) < BLOCK_BYTES
    assert last == len(records)

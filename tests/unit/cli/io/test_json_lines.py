"""Lines of JSON become records, or are said to be bad."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.cli.io.json_lines import MAX_LINE, FieldNames, LineSplitter, record_of
from changefeed.feeds.feed import MAX_TIME_US, MIN_TIME_US, Operation
from changefeed.log.records import Record, encode_record
from changefeed.runtime.errors import UserError


def test_a_line_is_the_body_and_its_fields_say_the_rest() -> None:
    line = b' {"o": {"id": 7}, "k": "x", "at": "1970-01-01T00:00:01.5Z", "op": "DELETE"}\r'
    fields = FieldNames(key="k", id="o.id", time="at", operation="op")
    assert record_of(line, fields) == Record(
        key="x",
        id="7",
        body=line.strip(),
        operation=Operation.DELETE,
        committed_us=1_500_000,
    )


@pytest.mark.parametrize(
    ("line", "key"), [(b'{"k": 5}', "k"), (b'{"a.b": 5, "a": {"b": 2}}', "a.b")]
)
def test_without_more_fields_a_line_is_an_insert_now_under_its_whole_key(
    line: bytes, key: str
) -> None:
    assert record_of(line, FieldNames(key=key)) == Record(key="5", body=line)


@pytest.mark.parametrize(
    ("written", "time_us"),
    [
        ("1.25", 1_250_000),
        ('"0001-01-01T00:00:00+00:00"', MIN_TIME_US),
        ('"9999-12-31T23:59:59.999999+00:00"', MAX_TIME_US),
    ],
)
def test_seconds_since_1970_and_all_that_calendars_have_are_times(
    written: str, time_us: int
) -> None:
    record = record_of(f'{{"k": "a", "t": {written}}}'.encode(), FieldNames(key="k", time="t"))
    assert record is not None
    assert encode_record(record, 0)[0] == time_us


@pytest.mark.parametrize(
    ("line", "says"),
    [
        *((x, "not JSON: ") for x in (b"{", b"\xff", b"[" * 100_000)),
        (b"[1]", "not an object"),
        (b"{}", "has no 'k'"),
        (b'{"k": null}', "'k' is null, and not text or a number"),
        (b'{"k": {"a": true}}', "'k' is {\"a\": true}, and not text or a number"),
        (b'{"k": "a"}', "has no 't'"),
        (b'{"k": "a", "t": "yesterday"}', "'t'"),
        (b'{"k": "a", "t": "2026-01-01T00:00:00"}', "time zone"),
        (b'{"k": "a", "t": 1767225600000}', "milliseconds"),
        (b'{"k": "a", "t": -1e17}', "years 1 to 9999$"),
        (b'{"k": "a", "t": 1e300}', "years 1 to 9999$"),
        (b'{"k": "a", "t": "9999-12-31T23:59:59-12:00"}', "years 1 to 9999$"),
        (b'{"k": "a", "t": "0001-01-01T00:00:00+14:00"}', "years 1 to 9999$"),
        (b'{"k": "a", "t": 1, "op": "upsert"}', '"upsert", .* insert, replace, delete'),
        (b'{"k": "a", "t": 1, "op": {}}', "insert, replace, delete"),
        (b" " + b"x" * (MAX_LINE + 1), "longer than"),
    ],
    ids=lambda x: x[:30] if isinstance(x, bytes) else "",
)
def test_a_bad_line_says_why(line: bytes, says: str) -> None:
    with pytest.raises(UserError, match=says):
        record_of(line, FieldNames(key="k", time="t", operation="op"))


def test_lines_are_cut_wherever_blocks_end_and_the_last_needs_no_newline() -> None:
    lines = LineSplitter()
    assert [lines.cut(x) for x in (b"a\nb", b"c\n\nd", b"")] == [[b"a"], [b"bc", b""], [b"d"]]


@given(text=st.binary(max_size=60).map(lambda x: x.replace(b"x", b"\n")), data=st.data())
def test_lines_are_the_same_in_whatever_blocks_they_come(
    text: bytes, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    blocks = [text[a:b] for a, b in pairwise([0, *cuts, len(text)]) if a < b]
    lines = LineSplitter()
    found = [line for block in [*blocks, b""] for line in lines.cut(block)]
    wanted = text.split(b"\n")
    assert found == (wanted[:-1] if not wanted[-1] else wanted)


def test_a_line_that_is_too_long_is_one_bad_line_whatever_follows_of_it() -> None:
    lines, block = LineSplitter(), b"x" * (1024 * 1024)
    cut = [line for _ in range(40) for line in lines.cut(block)]
    assert [len(x) > MAX_LINE for x in cut] == [True]
    assert lines.cut(b'{"k":1}\n{"k":2}\nrest') == [b'{"k":2}']
    assert lines.cut(b"") == [b"rest"]

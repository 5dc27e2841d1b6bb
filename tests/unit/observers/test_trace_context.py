"""Which trace the body of a change says it belongs to."""

import msgspec
import pytest
from opentelemetry.trace import format_span_id, format_trace_id

from changefeed.observers.trace_context import TraceContextPointer
from tests.support import make

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


def found(pointer: str, body: object) -> tuple[str, str] | None:
    raw = body if isinstance(body, bytes) else msgspec.json.encode(body)
    context = TraceContextPointer(pointer).producer(make.change(1, body=raw))
    if context is None:
        return None
    return format_trace_id(context.trace_id), format_span_id(context.span_id)


@pytest.mark.parametrize(
    ("pointer", "body"),
    [
        ("/traceparent", {"traceparent": PARENT}),
        ("", {"traceparent": PARENT, "tracestate": "a=1"}),
        ("/meta/trace", {"meta": {"trace": PARENT}}),
        ("/meta/trace", {"meta": {"trace": {"traceparent": PARENT}}}),
        ("/headers/1", {"headers": ["x", PARENT]}),
        ("/a~1b/c~0d", {"a/b": {"c~d": PARENT}}),
        ("", PARENT),
    ],
)
def test_the_context_is_where_the_pointer_leads(pointer: str, body: object) -> None:
    assert found(pointer, body) == (TRACE, SPAN)


@pytest.mark.parametrize(
    "body",
    [
        b"",  # a delete without an image
        b"{no json",
        b'"\xff"',
        b"[" * 100_000,
        {"traceparent": 7},
        {"traceparent": None},
        {"traceparent": {"traceparent": ["x"]}},
        {"traceparent": "00-0-0-01"},
        {"traceparent": f"00-{'0' * 32}-{SPAN}-01"},
        {"traceparent": PARENT + "x" * 1000},
        {"traceparent": "ünïcode"},
        [PARENT],
        7,
        None,
    ],
)
def test_a_body_that_says_no_valid_context_has_none(body: object) -> None:
    assert found("/traceparent", body) is None


def test_what_is_no_pointer_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match="as in /traceparent"):
        TraceContextPointer("traceparent")

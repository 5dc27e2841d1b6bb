"""The span of a batch, as an exporter gets it."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, get_current_span

from changefeed.feeds.feed import Change
from changefeed.observers.adapters import adapt
from changefeed.observers.dead_letters import MemoryDeadLetters
from changefeed.observers.trace_context import TraceContextPointer
from changefeed.observers.tracing import BatchTracing
from tests.support import make
from tests.support.handing import Handing
from tests.support.observers import Gate

pytestmark = pytest.mark.usefixtures("steady_delays")

RETRY = {"max_delay": 1, "attempts": 3}


PARENT = f"00-{'a' * 32}-{'b' * 16}-01"


class Scene:
    """An observer as a host wraps it, and the spans that it left."""

    def __init__(self, observe: Any, *, pointer: str | None = None, **settings: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.letters = MemoryDeadLetters()
        self.tracing = BatchTracing(
            tracer=self.tracers.get_tracer("changefeed"),
            system="eventlog",
            feed="eventlog:data/log",
            host="anna",
            pointer=None if pointer is None else TraceContextPointer(pointer),
        )
        self.context = Gate()
        self.handing = Handing(
            adapt(observe, {}),
            letters=self.letters,
            context=self.context,
            tracing=self.tracing,
            retry=RETRY,
            **settings,
        )

    async def process(self, *changes: Change) -> None:
        await self.handing.process(changes)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    @property
    def span(self) -> ReadableSpan:
        (span,) = self.exporter.get_finished_spans()
        return span

    def events(self, name: str) -> list[dict[str, Any]]:
        events = [y for x in self.spans for y in x.events]
        return [dict(x.attributes or {}) for x in events if x.name == name]


async def takes_all(_changes: Sequence[Change]) -> None:
    """Be content."""


def fails(times: float) -> Callable[[Sequence[Change]], Any]:
    left = [times]

    async def observe(_changes: Sequence[Change]) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise KeyError("no such table")

    return observe


async def test_a_batch_has_a_span_in_the_words_of_messaging() -> None:
    scene = Scene(takes_all)
    await scene.process(make.change(3), make.change(9))
    span = scene.span
    assert (span.name, span.kind) == ("process eventlog:data/log", SpanKind.CONSUMER)
    assert span.parent is None
    assert dict(span.attributes or {}) == {
        "messaging.system": "eventlog",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "eventlog:data/log",
        "messaging.destination.partition.id": "r1",
        "messaging.batch.message_count": 2,
        "messaging.client.id": "anna",
        "changefeed.epoch": scene.context.epoch,
        "changefeed.sequence.first": 3,
        "changefeed.sequence.last": 9,
    }
    assert (span.status.status_code, list(span.events)) == (StatusCode.UNSET, [])


async def test_the_span_links_to_those_that_made_the_changes() -> None:
    scene = Scene(takes_all, pointer="/t")
    bodies = [{"t": PARENT}, {"t": "nonsense"}, {}, {"t": PARENT}]
    await scene.process(
        *(make.change(n, body=msgspec.json.encode(x)) for n, x in enumerate(bodies))
    )
    assert [format_span_id(x.context.span_id) for x in scene.span.links] == ["b" * 16]


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("limit", [None, 60.0])
async def test_what_the_observer_calls_is_below_the_span(
    concurrency: int, limit: float | None
) -> None:
    seen = []

    async def observe(_changes: Sequence[Change]) -> None:
        seen.append(get_current_span().get_span_context().span_id)

    scene = Scene(observe, concurrency=concurrency, timeout=limit)
    await scene.process(*(make.change(n, key=str(n)) for n in range(3)))
    assert set(seen) == {x.context.span_id for x in scene.spans if x.context is not None}


async def test_a_call_that_failed_is_an_error_and_says_what_was_raised() -> None:
    scene = Scene(fails(1))
    await scene.process(make.change(1))
    failed, done = scene.spans
    (raised,) = scene.events("exception")
    assert raised["exception.type"] == "KeyError"
    assert "no such table" in raised["exception.message"]
    assert "in observe" in raised["exception.stacktrace"]
    assert failed.status.status_code is StatusCode.ERROR
    assert "no such table" in (failed.status.description or "")
    assert (failed.attributes or {})["error.type"] == "KeyError"
    assert done.status.status_code is StatusCode.UNSET


async def test_the_line_of_a_failure_is_in_the_trace_of_its_attempt() -> None:
    scene, lines = Scene(fails(1)), dict[int, str]()

    class Reader(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines[get_current_span().get_span_context().span_id] = record.getMessage()

    logging.getLogger("changefeed").addHandler(reader := Reader())
    try:
        await scene.process(make.change(1))
    finally:
        logging.getLogger("changefeed").removeHandler(reader)
    failed, _ = scene.spans
    assert failed.context is not None
    assert "no such table" in lines[failed.context.span_id]


async def test_a_change_that_was_put_aside_is_an_event() -> None:
    async def observe(changes: Sequence[Change]) -> None:
        if any(x.sequence == 2 for x in changes):
            raise ValueError("cannot take 2")

    scene = Scene(observe, on_failure="dead-letter")
    await scene.process(*(make.change(n) for n in range(4)))
    (letter,) = scene.events("changefeed.dead_letter")
    assert letter["changefeed.sequence"] == 2
    assert letter["changefeed.dead_letter.id"] == (await scene.letters.list())[0].id
    assert scene.spans[-1].status.status_code is StatusCode.UNSET


async def test_a_batch_that_was_cut_off_says_so() -> None:
    async def observe(_changes: Sequence[Change]) -> None:
        await asyncio.sleep(1000)

    scene = Scene(observe)
    working = asyncio.create_task(scene.process(make.change(1)))
    await asyncio.sleep(1)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert scene.span.status.description == "cut off: the host stops, or has lost the lease"

"""A span for each call that hands an observer changes, linked to those that made them.

The names are those of OpenTelemetry's semantic conventions for messaging: the span is called
``process FEED``, of kind consumer, and begins a trace of its own: a batch has changes of many
traces. Each of those it has a link to, where the bodies say their contexts. The span is current
while the observer works, so that what it calls is below it. What it raises, and the dead letter
of a change, are events of it.

Limits: a span has ``OTEL_SPAN_LINK_COUNT_LIMIT`` links, 128 if unset, and no more bodies are
read than it takes to find those. A sampler sees none: a span gets them once it is recorded.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from itertools import islice

from opentelemetry.context import Context as TraceContext
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, get_current_span, use_span

from changefeed.feeds.feed import Change
from changefeed.observers.call import RangeContext
from changefeed.observers.dead_letters import DeadLetter
from changefeed.observers.error_text import kind_of, text_of, trace_of
from changefeed.observers.trace_context import TraceContextPointer

_CUT_OFF = "cut off: the host stops, or has lost the lease"

_batch: ContextVar[Span | None] = ContextVar("changefeed_batch", default=None)
"""The span of the batch that is being handled here, or was last: the current one may be the
user's own.
"""


@cache
def _links_kept() -> int:
    from opentelemetry.sdk.trace import SpanLimits  # noqa: PLC0415 - only where spans are made

    return SpanLimits().max_links or 128


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTracing:
    """Makes the spans of one host. ``system`` is the kind of its feed, ``feed`` its address,
    and ``pointer`` where bodies say the contexts of those that made them, if they do.
    """

    tracer: Tracer
    system: str
    feed: str
    host: str
    pointer: TraceContextPointer | None = None

    @contextmanager
    def batch(self, context: RangeContext, changes: Sequence[Change]) -> Iterator[None]:
        """Have a span while the block runs, and let it say how that ended."""
        span = self.tracer.start_span(
            f"process {self.feed}",
            TraceContext(),  # whatever runs this host is no reason for this batch
            SpanKind.CONSUMER,
            {
                "messaging.system": self.system,
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": self.feed,
                "messaging.destination.partition.id": context.range.id,
                "messaging.batch.message_count": len(changes),
                "messaging.client.id": self.host,
                "changefeed.epoch": context.epoch,
                "changefeed.sequence.first": changes[0].sequence,
                "changefeed.sequence.last": changes[-1].sequence,
            },
        )
        if self.pointer is not None and span.is_recording():
            for producer in islice(self.pointer.producers(changes), _links_kept()):
                span.add_link(producer)
        _batch.set(span)
        with use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        ):
            try:
                yield
            except BaseException as error:
                _record_end(span, error)
                raise


def in_batch() -> AbstractContextManager[object]:
    """Say in the trace of a batch what becomes of it."""
    return use_span(_batch.get() or get_current_span(), record_exception=False)


def record_dead_letter(letter: DeadLetter) -> None:
    span = _batch.get()
    if span is not None:
        span.add_event(
            "changefeed.dead_letter",
            {
                "changefeed.dead_letter.id": letter.id,
                "changefeed.sequence": letter.sequence,
                "exception.type": letter.failure.kind,
                "exception.message": letter.failure.text,
            },
        )


def _record_end(span: Span, error: BaseException) -> None:
    """Say why the batch was not done."""
    if isinstance(error, asyncio.CancelledError):
        span.set_status(StatusCode.ERROR, _CUT_OFF)
        span.set_attribute("error.type", kind_of(error))
        return
    span.set_status(StatusCode.ERROR, text_of(error))
    span.set_attribute("error.type", kind_of(error))
    span.add_event(  # as the conventions have it
        "exception",
        {
            "exception.type": kind_of(error),
            "exception.message": text_of(error),
            "exception.stacktrace": trace_of(error),
        },
    )

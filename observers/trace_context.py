"""Where the body of a change says the trace of who made it, and how that is read.

A pointer (RFC 6901) leads to a ``traceparent`` as W3C's Trace Context writes it, or to an
object that holds ``traceparent`` and perhaps ``tracestate``: ``/traceparent`` or the empty
pointer for events in the form of CloudEvents, ``/metadata/trace`` for a header of one's own.

What cannot be read is no context: a batch is delivered whatever its bodies say.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, get_current_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from changefeed.feeds.feed import Change

_FIELDS = ("traceparent", "tracestate")
_NOWHERE = Context()


class TraceContextPointer:
    """Reads the contexts of producers out of bodies.

    Raise ``ValueError``, with advice, for what is no JSON pointer.
    """

    def __init__(self, pointer: str) -> None:
        if pointer and not pointer.startswith("/"):
            raise ValueError(
                f"{pointer!r} is not a JSON pointer: one begins with a slash, as in "
                f"/{pointer}, or is empty for the whole body"
            )
        self._steps = [x.replace("~1", "/").replace("~0", "~") for x in pointer.split("/")[1:]]
        self._propagator = TraceContextTextMapPropagator()

    def producers(self, changes: Sequence[Change]) -> Iterator[SpanContext]:
        """Return each context once, in the order of the first change that it made."""
        seen = set()
        for change in changes:
            found = self.producer(change)
            if found is not None and (name := (found.trace_id, found.span_id)) not in seen:
                seen.add(name)
                yield found

    def producer(self, change: Change) -> SpanContext | None:
        """Return the context that its body says, if it says a valid one."""
        try:
            carrier = self._carrier(change.value())
        except (ValueError, RecursionError):  # it is no JSON, or no UTF-8
            return None
        context = self._propagator.extract(carrier, _NOWHERE)
        found = get_current_span(context).get_span_context()
        return found if found.is_valid else None

    def _carrier(self, value: Any) -> dict[str, str]:
        for step in self._steps:
            value = _below(value, step)
        if isinstance(value, str):
            return {"traceparent": value}
        found = {x: _below(value, x) for x in _FIELDS}
        return {name: x for name, x in found.items() if isinstance(x, str)}


def _below(value: Any, step: str) -> Any:
    if isinstance(value, dict):
        return value.get(step)
    if isinstance(value, list) and step.isascii() and step.isdecimal():
        return value[int(step)] if int(step) < len(value) else None
    return None

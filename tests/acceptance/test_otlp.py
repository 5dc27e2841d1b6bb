"""A host that pushes what it knows to a receiver of OTLP, which may be in trouble."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import PLACES, QUICK, changefeed, owners, running
from tests.support.otlp import Received, attributes, otlp_receiver
from tests.support.ports import free_port

RUN = ("run", *PLACES, *QUICK, "--name=anna")
TRACES = [f"{n:032x}" for n in range(1, 5)]
ORDERS = """
import logging
import structlog
from changefeed.runtime.logs import get_logger

LOGGERS = [logging.getLogger("orders"), structlog.get_logger("orders"), get_logger()]

def takes(changes):
    for change in changes:
        if change.value()["n"] == 7 and not told:
            told.append(7)
            raise ValueError("not yet")
        if change.value()["n"] == 8:
            for logger in LOGGERS:
                try:
                    raise KeyError("no such order")
                except KeyError:
                    logger.exception("order.failed")

told = []
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lines = "".join(
        json.dumps({"k": f"k{n % 9}", "n": n, "trace": f"00-{TRACES[n % 4]}-{n + 1:016x}-01"})
        + "\n"
        for n in range(40)
    )
    folder = tmp_path_factory.mktemp("made")
    done = changefeed("produce", "log", "--key=k", "--parts=2", cwd=folder, stdin=lines)
    assert done.returncode == 0, done.stderr
    (folder / "orders.py").write_text(ORDERS)
    return folder


@pytest.fixture
def receiver() -> Iterator[Received]:
    with otlp_receiver() as received:
        yield received


async def test_spans_metrics_and_logs_arrive(place: Path, receiver: Received) -> None:
    more = ("--observer=orders:takes", "--set=observer.trace_context=/trace")
    env = {**receiver.env, "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test"}
    async with running(*RUN, *more, cwd=place, env=env) as host:
        await host.reaches(lambda: _done(receiver) == 40)
        wanted = {"changefeed.lag", "changefeed.observer.duration"}
        await host.reaches(lambda: wanted <= {x.name for x in receiver.metrics()})
        await host.stops()

    spans = receiver.spans()
    assert {x.name for x in spans} == {f"process eventlog:{place}/log"}
    linked = [x for span in spans for x in span.links]
    assert {x.trace_id.hex() for x in linked} == set(TRACES)
    assert len({x.span_id for x in linked}) == 40
    (failed,) = [x for span in spans for x in span.events]
    assert attributes(failed)["exception.message"] == "not yet"

    changes = [
        point.as_int
        for metric in receiver.metrics()
        if metric.name == "changefeed.changes"
        for point in metric.sum.data_points
    ]
    assert max(changes) == max(sum(x) for x in zip(changes, strict=True))
    (said,) = [x for x in receiver.logs() if x.body.string_value == "observer.failed"]
    assert said.trace_id in {x.trace_id for x in spans}, "the line is in the trace of its batch"
    errors = [attributes(x) for x in receiver.logs() if x.body.string_value == "order.failed"]
    assert len(errors) == len(("logging", "structlog", "ours"))
    for error in errors:
        assert error["exception.type"] == "KeyError"
        assert error["exception.message"] == "'no such order'"
        assert 'raise KeyError("no such order")' in error["exception.stacktrace"]
        assert "exc_info" not in error
    bodies = {x.body.string_value for x in receiver.logs()}
    assert not [x for x in bodies if "/v1/logs" in x], "what pushes has nothing to push"
    for resource in receiver.resources():
        assert resource["service.name"] == "changefeed"
        assert resource["service.instance.id"] == "anna"
        assert resource["deployment.environment.name"] == "test"


def _done(receiver: Received) -> int:
    spans = [x for x in receiver.spans() if not x.status.message]
    return sum(attributes(x)["messaging.batch.message_count"] for x in spans)


@pytest.mark.parametrize("trouble", ["away", "slow", "answers 500"])
async def test_a_receiver_in_trouble_costs_a_host_neither_leases_nor_its_stop(
    place: Path, receiver: Received, trouble: str
) -> None:
    receiver.hangs, receiver.status = trouble == "slow", 500
    env = receiver.env
    if trouble == "away":
        env["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://127.0.0.1:{free_port()}"
    jsonl = ("--observer=jsonl", "--option=path=out.jsonl")
    async with running(*RUN, *jsonl, cwd=place, env=env) as host:
        await host.reaches(lambda: _lines(place / "out.jsonl") == 40)
        await host.says('"event": "lease.acquired"', times=2)
        if trouble != "away":
            await host.reaches(lambda: len(receiver.requests) >= 3)
        began = time.monotonic()
        await host.stops()
        took = time.monotonic() - began
    assert owners(place) == [None, None]
    ours = host.events("lease.released", "host.stopped", "call.failed")
    assert {x["level"] for x in ours} <= {"debug", "info"}
    assert took < 8, "a stop waits for no receiver"


def _lines(file: Path) -> int:
    return len(file.read_text().splitlines()) if file.exists() else 0

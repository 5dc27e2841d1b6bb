"""The commands that look at checkpoints, over one that was made without Spark."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner, Result

from changefeed.cli.app import app as host
from changefeed.cli.pipeline import app
from changefeed.cli.pipeline import session as surroundings
from changefeed.cli.pipeline.flags import PipelineFlags, from_leases
from changefeed.feeds.feed import RangeId
from changefeed.leases import position_file as exchange
from changefeed.leases.addresses import open_container
from changefeed.leases.lease import Lease
from changefeed.pipeline.checkpoint_dir import (
    Failures,
    base_epoch,
    begun,
    failures_reported,
    owned,
    report_failures,
    settle_epoch,
)
from changefeed.pipeline.source.eventlog_reader import LogAccess
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.planning import first_offset, next_offset
from changefeed.runtime.telemetry import Telemetry
from tests.support import make
from tests.support.pipeline_feeds import a_log

R0 = RangeId("e1.p00.v00-ff")
NO_TABLES = ("--set=changes.enabled=false", "--set=latest.enabled=false")
PUT_ASIDE = ("--set=observer.on_failure=dead-letter", "--set=observer.dead_letters=nats:x")


@pytest.fixture(autouse=True)
def _logs_and_metrics_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def nothing(*_: object) -> Iterator[Telemetry]:
        yield Telemetry(
            meters=MeterProvider(), registry=CollectorRegistry(), tracers=None, log_handlers=()
        )

    monkeypatch.setattr(surroundings, "telemetry", nothing)
    monkeypatch.setattr(surroundings, "set_up_logs", lambda *_: None)


def a_checkpoint(home: Path, *, begun: int = 0) -> Offset:
    """Make a log of 100 changes, and the checkpoint of a query that has read 30 of them."""
    a_log(home / "log", {"k": 100}, parts=1)
    with closing(LogAccess(str(home / "log"))) as access:
        done = next_offset(access, first_offset(access, "beginning"), limit=30)
    checkpoint = home / "tables/_checkpoints/changes"
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
    for batch in range(begun + 1):
        (checkpoint / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{done.as_text()}")
    (checkpoint / "commits/0").write_text("v1\n{}")
    return done


def asked(home: Path, *arguments: str) -> Result:
    places = (f"--feed=eventlog:{home / 'log'}", f"--directory={home / 'tables'}")
    return CliRunner().invoke(app, [*arguments, *places])


def test_a_mistyped_directory_is_not_called_empty(tmp_path: Path) -> None:
    found = asked(tmp_path, "status")
    assert (found.exit_code, "there are no tables at" in found.output) == (2, True)


def test_status_lists_each_table_range_by_range(tmp_path: Path) -> None:
    done = a_checkpoint(tmp_path)
    shown = asked(tmp_path, "status")
    assert "changes: batch 0, lag 70, not running" in shown.stdout
    assert "latest: no batch yet, not running" in shown.stdout
    with owned(str(tmp_path / "tables/_checkpoints/changes")):
        listed = json.loads(asked(tmp_path, "status", "--json").stdout)
    position = done.marks[R0].position
    ranges = [{"range": R0, "position": position, "lag": 70, "ended": False}]
    nothing: dict[str, object] = {"batch": None, "lag": None, "waits_for": None, "ranges": []}
    changes = {"batch": 0, "lag": 70, "waits_for": None, "ranges": ranges}
    assert listed == {
        "tables": [
            {"table": "changes", "running": True, **changes},
            {"table": "latest", "running": False, **nothing},
        ]
    }
    assert not (tmp_path / "tables/_checkpoints/latest").exists(), "looking makes nothing"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("metadata", "no JSON"),
        ("metadata", "[1]"),
        ("offsets/1", ""),
        ("offsets/1", "v1\n{}"),
        ("offsets/1", "v1\nrubbish\n{}"),
        ("offsets/1", 'v1\n{}\n{"e1.p00.v00-ff": 5}'),
        ("offsets/1", "\0\0\0\n\0\n\0"),
        ("commits/0", ""),
        ("commits/0", "v1\nrubbish"),
        ("commits/0", "{}\n{}"),
    ],
)
def test_a_damaged_checkpoint_is_refused_with_its_file(
    tmp_path: Path, file: str, text: str
) -> None:
    a_checkpoint(tmp_path, begun=1)
    damaged = tmp_path / "tables/_checkpoints/changes" / file
    damaged.write_text(text)
    refused = asked(tmp_path, "run", "--once")
    assert refused.exit_code == 2, refused.exception
    assert f"is damaged: {damaged}: " in refused.stderr


def test_positions_are_exported_unless_the_query_runs(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "tables/_checkpoints/changes")
    settle_epoch(checkpoint, 7)
    done = a_checkpoint(tmp_path)
    exported = asked(tmp_path, "export")
    (lease,) = exchange.read(exported.stdout.encode())
    assert (lease.range_id, lease.position) == (R0, done.marks[R0].position)
    assert (lease.epoch, lease.owner, lease.ended) == (8, None, False)
    assert exported.stderr == ""
    with owned(checkpoint):
        refused = asked(tmp_path, "export")
    assert (refused.exit_code, "stop it first" in refused.stderr) == (2, True)
    unknown = asked(tmp_path, "export", "latest")
    assert (unknown.exit_code, "nothing to export" in unknown.stderr) == (2, True)


def test_an_export_says_that_a_batch_was_begun_and_is_not_done(tmp_path: Path) -> None:
    a_checkpoint(tmp_path, begun=1)
    exported = asked(tmp_path, "export", "changes")
    assert "batch 1" in exported.stderr
    (lease,) = exchange.read(exported.stdout.encode())
    assert lease.epoch == 2  # that of the batch that was begun


@pytest.mark.real_time
def test_leases_count_for_what_has_no_checkpoint_yet(tmp_path: Path) -> None:
    done = a_checkpoint(tmp_path)
    position = done.marks[R0].position
    lease = make.lease(R0, at=position, epoch=4)
    asyncio.run(create(f"sqlite:{tmp_path / 'leases.db'}", lease))
    feed, directory = f"eventlog:{tmp_path / 'log'}", str(tmp_path / "tables")
    settings = PipelineFlags(feed=feed, directory=directory).settings()
    leases = f"sqlite:{tmp_path / 'leases.db'}"
    assert from_leases(settings, leases, ["changes"]) == (settings, 0)
    found, epoch = from_leases(settings, leases, ["changes", "latest"])
    assert (Offset.of(found.start), epoch) == (done, 4)


async def create(address: str, lease: Lease) -> None:
    async with open_container(address) as container:
        await container.create(lease)


@pytest.mark.real_time
def test_positions_become_leases_where_there_are_no_others(tmp_path: Path) -> None:
    done = a_checkpoint(tmp_path)
    document = asked(tmp_path, "export").stdout
    code, said = imported(tmp_path, "log", "new.db", document)
    assert (code, f"{R0}: created" in said) == (0, True), said
    assert str(done.marks[R0].position) in said
    code, said = imported(tmp_path, "log", "new.db", document)
    assert (code, f"{R0}: stays" in said) == (0, True), said
    asyncio.run(create(f"sqlite:{tmp_path / 'old.db'}", make.lease("other", at="7")))
    code, said = imported(tmp_path, "log", "old.db", document)
    assert (code, "nothing was changed" in said) == (1, True), said
    a_log(tmp_path / "another", {"k": 100}, parts=1)
    code, _ = imported(tmp_path, "another", "third.db", document)
    assert code == 2, "the positions are of another log"
    assert not (tmp_path / "third.db").exists()


def imported(home: Path, log: str, leases: str, document: str) -> tuple[int, str]:
    """Give a document to hosts; return the exit code and what was said."""
    places = (f"--feed=eventlog:{home / log}", f"--leases=sqlite:{home / leases}")
    done = CliRunner().invoke(host, ["positions", "import", "-", *places], input=document)
    return done.exit_code, done.output


def test_an_epoch_to_count_on_is_settled_once(tmp_path: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    assert base_epoch(checkpoint) == 0
    assert settle_epoch(checkpoint, 0) == 0
    assert settle_epoch(checkpoint, 9) == 9  # nothing was begun under the first
    assert settle_epoch(checkpoint, 5) == 9
    (tmp_path / "checkpoint/offsets").mkdir()
    (tmp_path / "checkpoint/offsets/.0.f00.tmp").touch()  # not yet
    assert (settle_epoch(checkpoint, 10), begun(checkpoint)) == (10, False)
    (tmp_path / "checkpoint/offsets/0").touch()
    assert (settle_epoch(checkpoint, 11), begun(checkpoint)) == (10, True)
    assert settle_epoch("s3://bucket/checkpoint", 9) == 9


def test_failures_of_a_batch_are_returned_once_and_written_only_if_any(
    tmp_path: Path,
) -> None:
    checkpoint = str(tmp_path)
    one = Failures(retries={R0: 2}, dead_letters={R0: 1})
    report_failures(checkpoint, 3, Failures.together([one, one, Failures()]))
    report_failures(checkpoint, 4, Failures())
    assert failures_reported(checkpoint, 3) == Failures(retries={R0: 4}, dead_letters={R0: 2})
    assert failures_reported(checkpoint, 3) == failures_reported(checkpoint, 4) == Failures()
    assert failures_reported("s3://bucket/checkpoint", 3) == Failures()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("run", "--once"), "changefeed produce"),
        (("observe",), "no observer"),
        (("observe", "--observer=nothing"), "'nothing'"),
        (("observe", "--observer=log", *PUT_ASIDE), "dead letters"),
        (("export",), "there is none in"),
        (("run", *NO_TABLES), "no table is enabled"),
        (("run", "--from-leases=nats:x"), "nats:x"),
    ],
)
def test_wrong_settings_are_reported_before_spark_starts(
    arguments: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    done = asked(tmp_path, *arguments)
    assert (done.exit_code, named in done.stderr) == (2, True), done.stderr


def test_a_place_has_to_be_named() -> None:
    done = CliRunner().invoke(app, ["run", "--feed=eventlog:log"])
    assert (done.exit_code, "directory: " in done.stderr) == (2, True)

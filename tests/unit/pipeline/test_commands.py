"""The commands that look at checkpoints, over one that was made without Spark."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner, Result

from changefeed.cli.app import app as host
from changefeed.cli.commands.pipeline import pipeline as app
from changefeed.cli.pipeline import session as surroundings
from changefeed.feeds.feed import RangeId
from changefeed.leases.addresses import open_container
from changefeed.leases.lease import Lease
from changefeed.pipeline.checkpoint_dir import owned
from changefeed.runtime.telemetry import Telemetry
from tests.support.pipeline_feeds import a_checkpoint, a_log, append_bodies
from tests.support.schemas_page import check_document

R0 = RangeId("e1.p01.v00-ff")
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
    "text", ["", "v1\n{}", 'v1\n{}\n{"e1.p01.v00-ff": 5}', "\0\0\0\n\0\n\0"]
)
def test_a_damaged_checkpoint_is_refused_with_its_file(tmp_path: Path, text: str) -> None:
    a_checkpoint(tmp_path)
    damaged = tmp_path / "tables/_checkpoints/changes/offsets/0"
    damaged.write_text(text)
    refused = asked(tmp_path, "status")
    assert refused.exit_code == 2, refused.exception
    assert f"is damaged: {damaged}: " in refused.stderr


def test_schema_prints_columns_and_what_does_not_fit_and_makes_nothing(tmp_path: Path) -> None:
    feed = f"--feed={a_log(tmp_path / 'log', {'a': 30}, parts=1)}"
    shown = CliRunner().invoke(app, ["schema", feed, "--changes=10"])
    assert (shown.exit_code, shown.stdout) == (0, "n BIGINT\n")
    append_bodies(tmp_path / "log", "a", b'{"n": "1"}')
    shown = CliRunner().invoke(app, ["schema", feed, "--changes=10"])
    assert shown.stdout.startswith("n BIGINT\n")
    assert all(x in shown.stdout for x in ("$.n", "9 BIGINT, 1 STRING", "1 of 10"))
    document = CliRunner().invoke(app, ["schema", feed, "--json"]).stdout
    assert check_document("pipeline schema", document)["body_schema"] == "n BIGINT"
    refused = CliRunner().invoke(app, ["schema", f"--feed=eventlog:{tmp_path / 'none'}"])
    assert (refused.exit_code, "none" in refused.stderr) == (2, True)
    assert sorted(x.name for x in tmp_path.iterdir()) == ["log"]


async def create(address: str, lease: Lease) -> None:
    async with open_container(address) as container:
        await container.create(lease)


@pytest.mark.real_time
def test_positions_become_leases_where_there_are_no_others(tmp_path: Path) -> None:
    done = a_checkpoint(tmp_path, begun=1)
    position = done.marks[R0].position
    checkpoint = tmp_path / "tables/_checkpoints/changes"
    with owned(str(checkpoint)):
        assert imported(tmp_path, "log", "new.db", yes=True)[0] == 2, "its query runs"
    code, said = imported(tmp_path, "log", "new.db")
    assert (code, "created, 70 changes behind" in said) == (0, True), said
    lease = asyncio.run(read(f"sqlite:{tmp_path / 'new.db'}"))
    assert (lease.position, lease.epoch, lease.owner, lease.ended) == (position, 2, None, False)
    a_log(tmp_path / "another", {"k": 100}, parts=1)
    code, said = imported(tmp_path, "another", "third.db")
    assert code == 2, "the positions are of another log"
    assert not (tmp_path / "third.db").exists()
    latest = f"checkpoint:{tmp_path / 'tables/_checkpoints/latest'}"
    code, said = imported(tmp_path, "log", "third.db", source=latest)
    assert (code, "no batch that is done" in said) == (2, True)


def imported(
    home: Path, log: str, leases: str, *, source: str | None = None, yes: bool = False
) -> tuple[int, str]:
    """Give positions to hosts; return the exit code and what was said."""
    source = source or f"checkpoint:{home / 'tables/_checkpoints/changes'}"
    places = (f"--feed=eventlog:{home / log}", f"--leases=sqlite:{home / leases}")
    arguments = ["positions", "import", source, *places, *(["--yes"] if yes else [])]
    done = CliRunner().invoke(host, arguments)
    return done.exit_code, done.output


async def read(address: str) -> Lease:
    async with open_container(address) as container:
        found = await container.read(R0)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("run", "--once"), "changefeed produce"),
        (("run", "--observer=nothing"), "'nothing'"),
        (("run", "--observer=log", *PUT_ASIDE), "dead letters"),
        (("run", *NO_TABLES), "no table is enabled"),
    ],
)
def test_wrong_settings_are_reported_before_spark_starts(
    arguments: tuple[str, ...], named: str, tmp_path: Path
) -> None:
    done = asked(tmp_path, *arguments)
    assert (done.exit_code, named in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize(
    ("master", "variables"),
    [("sc://127.0.0.1:1", {}), ("local[2,4]", {"SPARK_REMOTE": "sc://127.0.0.1:1"})],
)
def test_a_server_of_spark_connect_is_refused(
    master: str, variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_log(tmp_path / "log", {"k": 1})
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    done = asked(tmp_path, "run", "--once", f"--set=master={master}")
    assert (done.exit_code, "Spark Connect" in done.stderr) == (2, True), done.stderr


def test_a_directory_that_cannot_be_made_is_a_wrong_setting(tmp_path: Path) -> None:
    a_log(tmp_path / "log", {"k": 1})
    (tmp_path / "tables").write_text("a file of that name")
    done = asked(tmp_path, "run")
    assert (done.exit_code, "--directory" in done.stderr) == (2, True), done.stderr


def test_a_place_has_to_be_named() -> None:
    done = CliRunner().invoke(app, ["run", "--feed=eventlog:log"])
    assert (done.exit_code, "directory is required" in done.stderr) == (2, True)

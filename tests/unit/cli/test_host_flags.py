"""Flags, environment and file become settings, or an error that names what is wrong, and where.

What such an error says is in ``tests/messages``.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import HostFlags
from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.runtime.errors import UserError
from changefeed.runtime.secret import Secret


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "c.toml"


def in_file(file: Path, toml: str) -> HostFlags:
    file.write_text(toml)
    return HostFlags(config=file)


def mistake_of(choices: HostFlags) -> str:
    with pytest.raises(UserError) as caught:
        choices.settings()
    return str(caught.value)


def test_a_flag_goes_before_the_environment_and_that_before_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = in_file(file, "[leases]\nexpiration = 31\nmax_handoff_time = 9\nmax_ranges = 4\n")
    monkeypatch.setenv("CHANGEFEED_LEASES__EXPIRATION", "32")
    monkeypatch.setenv("CHANGEFEED_LEASES__MAX_HANDOFF_TIME", "8")
    leases = replace(given, sets=["leases.expiration=33"]).settings().leases
    assert (leases.expiration, leases.max_handoff_time, leases.max_ranges) == (33, 8, 4)


def test_options_are_what_json_makes_of_them_or_else_text_and_join_those_of_the_file(
    file: Path,
) -> None:
    given = in_file(file, '[observer.options]\npath = "a"\nother = 1\n')
    choices = replace(given, options=["path=out/{range}=x", "fsync=true", "every=2.5"])
    assert choices.settings().observer.options == {
        "path": "out/{range}=x",
        "other": 1,
        "fsync": True,
        "every": 2.5,
    }


def test_files_in_settings_are_found_from_any_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sets = ["web.token_file=t", "cosmos.key_file=k", "backends.redis.password_file=p"]
    settings = HostFlags(sets=sets).settings()
    assert settings.feed.address == f"eventlog:{tmp_path}/data/log"
    assert settings.leases.addresses == (f"sqlite:{tmp_path}/data/leases.db",)
    assert settings.observer.dead_letters == f"sqlite:{tmp_path}/data/dead-letters.db"
    assert (settings.web.file_of("token"), settings.cosmos.file_of("key")) == (
        tmp_path / "t",
        tmp_path / "k",
    )
    assert settings.backends.sections == {"redis": {"password_file": f"{tmp_path}/p"}}
    apart = ["leases.address=sqlite:a", "leases.checkpoints=sqlite:b"]
    leases = HostFlags(sets=apart).settings().leases
    assert leases.addresses == (f"sqlite:{tmp_path}/a", f"sqlite:{tmp_path}/b")


def test_leases_on_the_command_line_go_before_two_stores_in_the_file(file: Path) -> None:
    given = in_file(file, '[leases]\naddress = "sqlite:a"\ncheckpoints = "sqlite:b"\n')
    leases = replace(given, leases="sqlite:/c").settings().leases
    assert (leases.address, leases.checkpoints) == ("sqlite:/c", None)


@pytest.mark.parametrize(
    "sets",
    [
        ["leases.expiration=50", "leases={}"],
        ["leases={}", "leases.expiration=50"],
        ["leases.expiration=40", 'leases={"expiration": 50}'],
        ['leases={"expiration": 40}', "leases.expiration=50"],
        ['leases={"expiration": 50}', 'leases={"max_handoff_time": 9}'],
    ],
)
def test_a_section_that_is_set_later_takes_nothing_away(sets: list[str]) -> None:
    assert HostFlags(sets=sets).settings().leases.expiration == 50


def test_a_command_line_makes_the_flags_that_it_is_made_of_but_a_child_has_its_own_name() -> (
    None
):
    flags = HostFlags(
        config=Path("a b.toml"),
        feed="eventlog:a b",
        leases="sqlite:-x",
        observer="m:C",
        start="now",
        name="mine",
        options=["a=--b"],
        sets=["web.port=1", "leases.expiration=77"],
    )
    assert parsed([*flags.arguments()]) == flags
    assert parsed([*flags.arguments_of_child()]) == replace(flags, name=None)
    assert parsed([]) == HostFlags()


def parsed(arguments: list[str]) -> HostFlags:
    """Return the flags that a command gets, with nothing but flags on its command line."""
    given = []

    @with_flags
    def command(flags: HostFlags) -> None:
        given.append(flags)

    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    return given[0]


COMMAND_LINE = "the command line"
PORT = "CHANGEFEED_WEB__PORT"


@pytest.mark.parametrize(
    ("toml", "environ", "sets", "name", "source"),
    [
        ("", {}, ["leases.expiration=-5"], "leases.expiration", COMMAND_LINE),
        ("", {}, ["leases.expiraton=5"], "leases.expiraton", COMMAND_LINE),
        ("", {}, ["web=x", "web.port=1"], "web.port", None),
        ("", {}, ["leases.renew_interval=20"], "leases.renew_interval", COMMAND_LINE),
        ("[feed]\nlag_interval = 5", {}, [], "feed.lag_interval", "{file}"),
        ("", {}, ["expiration"], "--set expiration", None),
        ("", {}, ["=5"], "--set =5", None),
        ("", {PORT: "eighty"}, [], "web.port", PORT),
        (
            "[backends.b]\nx = 1",
            {"CHANGEFEED_BACKENDS__A": "5"},
            [],
            "backends.a",
            "{variable}",
        ),
        (
            "[leases]\nexpiration = 31",
            {"CHANGEFEED_LEASES__RENEW__INTERVAL": "5"},
            [],
            "leases.renew",
            "{variable}",
        ),
        (
            "",
            {"CHANGEFEED_LEASES": '{"expiration": null}'},
            [],
            "leases.expiration",
            "{variable}",
        ),
        ("[feed]\npage_size = 0", {}, [], "feed.page_size", "{file}"),
        ("[leases]\nexpiration = [1]", {}, [], "leases.expiration", "{file}"),
        ("[leases]\nexpiration = 2026-01-31", {}, [], "leases.expiration", "{file}"),
        ("[leases]\nexpiration = true", {}, [], "leases.expiration", "{file}"),
        ("[feed]\npage_size = true", {}, [], "feed.page_size", "{file}"),
        ("[feed]\npoll_interval = false", {}, [], "feed.poll_interval", "{file}"),
        ("leases = 5", {}, [], "leases", "{file}"),
    ],
)
def test_a_wrong_value_is_named_with_where_it_comes_from(  # noqa: PLR0917 - a table
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    toml: str,
    environ: Mapping[str, str],
    sets: list[str],
    name: str,
    source: str | None,
) -> None:
    for variable, value in environ.items():
        monkeypatch.setenv(variable, value)
    said = mistake_of(replace(in_file(file, toml), sets=sets))
    if source is not None:
        source = source.format(file=file, variable=next(iter(environ), None))
        name = f"{name} (from {source}): "
    assert name in said
    assert len(said.splitlines()) <= 2, "nothing else is wrong"


@pytest.mark.parametrize("value", ["9" * 5000, "9" * 30, "[" * 50_000])
@pytest.mark.parametrize("name", ["feed.page_size", "observer.max_unacknowledged"])
def test_a_number_that_is_too_large_is_refused_and_not_repeated(name: str, value: str) -> None:
    text = mistake_of(HostFlags(sets=[f"{name}={value}"]))
    assert f"{name} (from {COMMAND_LINE}): " in text
    assert len(text) < 300


@pytest.mark.parametrize(
    "start",
    ["2026-01-01T00:00:00", "2026", "20260131", "1767225600", "-1", "1e9", "yesterday", ""],
)
def test_a_start_that_is_no_time_with_a_zone_is_refused(
    start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert f"feed.start (from {COMMAND_LINE}): " in mistake_of(HostFlags(start=start))
    monkeypatch.setenv("CHANGEFEED_FEED__START", start)
    assert "feed.start (from CHANGEFEED_FEED__START): " in mistake_of(HostFlags())


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("'now'", "now"),
        ("'2026-01-31T13:00+01:00'", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026", None),
        ("2026-01-31T12:00:00", None),
        ("2026-01-31", None),
    ],
)
def test_a_start_in_the_file_is_text_or_a_time_of_toml(
    file: Path, written: str, start: object
) -> None:
    flags = in_file(file, f"[feed]\nstart = {written}\n")
    if start is None:
        assert "feed.start" in mistake_of(flags)
    else:
        assert flags.settings().feed.start == start


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CHANGEFEED_WEB__PIPELINES", "http://x:1"),
        ("CHANGEFEED_OBSERVER__OPTIONS", "{"),
        ("changefeed_observer", "{"),
        ("CHANGEFEED_LEASES", "{expiration"),
        ("CHANGEFEED_LEASES", "[" * 50_000),
    ],
)
def test_a_variable_that_must_be_json_and_is_not_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("CHANGEFEED_FEED__ADDRESS", "eventlog:x")  # which is no JSON, too
    assert mistake_of(HostFlags()).startswith(f"{variable} in the environment must be JSON")


def test_an_unknown_section_in_the_environment_is_refused_and_foreign_variables_are_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CHANGEFEED_PIPELINE__DIRECTORY", "tables")  # of the pipeline beside
    monkeypatch.setenv("CHANGEFEED_STARTED_AS", "{}")  # of our supervisor
    monkeypatch.setenv("CHANGEFEED_CONFIG", "changefeed.toml")  # which --config reads
    monkeypatch.setenv("CHANGEFEED_PORT", "tcp://10.0.0.1:80")  # as Kubernetes makes them
    monkeypatch.setenv("CHANGEFEED_SERVICE_HOST", "10.0.0.1")
    assert HostFlags().settings().web.port == 0
    (said,) = caplog.messages
    assert "has CHANGEFEED_PORT, CHANGEFEED_SERVICE_HOST: no setting" in said
    monkeypatch.setenv("CHANGEFEED_LEASE__EXPIRATION", "5")
    assert "CHANGEFEED_LEASE__EXPIRATION" in mistake_of(HostFlags())


@pytest.mark.parametrize(
    "made",
    [
        *(None, b"[leases\n", b"\xff\xfe", b"a = " + b"9" * 5000),
        *(b"a = " + b"[" * 5000, b"a" * 10 + b".a" * 5000),
    ],
    ids=["none", "no TOML", "no text", "a huge number", "a deep list", "a deep name"],
)
def test_a_file_that_is_no_settings_is_named(file: Path, made: bytes | None) -> None:
    if made is not None:
        file.write_bytes(made)
    assert str(file) in mistake_of(HostFlags(config=file))
    assert str(file.parent) in mistake_of(HostFlags(config=file.parent))


def test_secrets_of_cosmos_are_taken_from_the_environment_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHANGEFEED_COSMOS__KEY", "c2VjcmV0")
    monkeypatch.setenv("CHANGEFEED_COSMOS__TOKEN", "")
    settings = HostFlags().settings()
    assert settings.cosmos.access == CosmosAccess(key=Secret.of("c2VjcmV0"))
    assert "c2VjcmV0" not in repr(settings) + str(settings) + settings.model_dump_json()
    monkeypatch.setenv("CHANGEFEED_COSMOS__KEY_FILE", "/run/secrets/key")
    said = mistake_of(HostFlags())
    assert "key_file" in said
    assert "c2VjcmV0" not in said


def test_secrets_are_read_from_files_as_they_are_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("c2VjcmV0\n")
    monkeypatch.setenv("CHANGEFEED_COSMOS__KEY_FILE", str(file))
    assert HostFlags().settings().cosmos.access == CosmosAccess(key=Secret.of("c2VjcmV0"))
    assert CosmosAccess.of(os.environ) == CosmosAccess(key=Secret.of("c2VjcmV0"))
    file.write_text("cm90YXRlZA==\n")
    assert HostFlags().settings().cosmos.access.key == Secret.of("cm90YXRlZA==")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("WEB__TOKEN", "hunter2"),
        ("COSMOS", '"hunter2"'),
        ("WEB", '["hunter2"]'),
        ("BACKENDS__REDIS", "hunter2"),
        ("BACKENDS", '{"redis": "hunter2"}'),
        ("COSMOS", '{"key": "hunter2"'),
    ],
)
def test_a_secret_that_is_wrong_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv(f"CHANGEFEED_{variable}", value)
    text = mistake_of(HostFlags())
    assert f"CHANGEFEED_{variable}" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "toml", ["[web]\ntoken = 1234567", "cosmos = 1234567", "[cosmos]\nkey = [1234567]"]
)
def test_a_secret_in_a_file_is_not_shown_either(file: Path, toml: str) -> None:
    assert "1234567" not in mistake_of(in_file(file, toml))
    assert "1234567" not in mistake_of(HostFlags(sets=["web.token=1234567"]))

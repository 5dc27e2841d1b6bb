"""Flags, environment and file become settings, or messages in the user's own words."""

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from changefeed.cli.flags import with_flags
from changefeed.cli.host_flags import HostFlags
from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.host.settings import Settings
from changefeed.runtime.errors import UserError


def mistake_of(choices: HostFlags) -> str:
    with pytest.raises(UserError) as caught:
        choices.settings()
    return str(caught.value)


def test_a_flag_goes_before_the_environment_and_that_before_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[leases]\nexpiration = 31\nrenew_interval = 9\nbalance_interval = 4\n")
    monkeypatch.setenv("CHANGEFEED_LEASES__EXPIRATION", "32")
    monkeypatch.setenv("CHANGEFEED_LEASES__RENEW_INTERVAL", "8")

    leases = HostFlags(config=file, sets=["leases.expiration=33"]).settings().leases

    assert (leases.expiration, leases.renew_interval, leases.balance_interval) == (33, 8, 4)


def test_options_are_what_json_makes_of_them_or_else_text_and_join_those_of_the_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[observer.options]\npath = "a"\nother = 1\n')

    choices = HostFlags(config=file, options=["path=out/{range}=x", "fsync=true", "every=2.5"])

    assert choices.settings().observer.options == {
        "path": "out/{range}=x",
        "other": 1,
        "fsync": True,
        "every": 2.5,
    }


def test_null_takes_a_limit_away_that_the_file_has_set(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[observer.retry]\nattempts = 3\n")
    assert HostFlags(config=file).settings().observer.retry.attempts == 3
    choices = HostFlags(config=file, sets=["observer.retry.attempts=null"])
    assert choices.settings().observer.retry.attempts is None


def test_leases_on_the_command_line_go_before_two_stores_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[leases]\nownership = "sqlite:a"\ncheckpoints = "sqlite:b"\n')

    leases = HostFlags(config=file, leases="sqlite:c").settings().leases

    assert (leases.container, leases.ownership, leases.checkpoints) == ("sqlite:c", None, None)


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
        create_leases=True,
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


def test_a_wrong_value_is_named_with_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[feed]\npage_size = 0\n")
    monkeypatch.setenv("CHANGEFEED_WEB__PORT", "eighty")

    assert mistake_of(HostFlags(config=file, sets=["leases.expiration=-5"])).splitlines() == [
        "wrong settings",
        f"  feed.page_size (from {file}): should be greater than or equal to 1; it is 0",
        "  leases.expiration (from the command line): should be greater than 0; it is '-5'",
        (
            "  web.port (from CHANGEFEED_WEB__PORT): should be a valid integer, "
            "unable to parse string as an integer; it is 'eighty'"
        ),
    ]


@pytest.mark.parametrize(
    "start",
    ["2026-01-01T00:00:00", "2026", "20260131", "1767225600", "-1", "1e9", "yesterday", ""],
)
def test_a_start_that_is_no_time_with_a_zone_is_refused_with_what_is_allowed(
    start: str,
) -> None:
    assert mistake_of(HostFlags(start=start)).splitlines()[1:] == [
        (
            "  feed.start (from the command line): should be beginning, now, or a time with "
            "its zone, as 2026-01-31T12:00Z or 2026-01-31T13:00+01:00; it is "
            f"{start!r}"
        ),
    ]


@pytest.mark.parametrize(
    ("written", "start"),
    [
        ("'now'", "now"),
        ("'2026-01-31T13:00+01:00'", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("2026", None),
        ("20260131", None),
        ("2026-01-31T12:00:00", None),
        ("2026-01-31", None),
    ],
)
def test_a_start_in_the_file_is_text_or_a_time_of_toml(
    tmp_path: Path, written: str, start: object
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(f"[feed]\nstart = {written}\n")
    flags = HostFlags(config=file)
    if start is None:
        assert "feed.start" in mistake_of(flags)
    else:
        assert flags.settings().feed.start_at == start


def test_a_year_in_the_environment_is_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEFEED_FEED__START", "2026")
    assert "feed.start (from CHANGEFEED_FEED__START): should be" in mistake_of(HostFlags())


def test_an_unknown_setting_is_refused_with_the_nearest_one() -> None:
    assert mistake_of(HostFlags(sets=["leases.expiraton=5"])).splitlines()[1:] == [
        (
            "  leases.expiraton (from the command line): there is no such setting; did "
            "you mean leases.expiration?"
        ),
    ]


def test_times_that_do_not_fit_together_are_explained() -> None:
    assert "leases: renew_interval (20 s) is too long: two renewals" in mistake_of(
        HostFlags(sets=["leases.renew_interval=20"])
    )


def test_an_unknown_section_in_the_environment_is_refused_and_foreign_variables_are_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHANGEFEED_PORT", "tcp://10.0.0.1:80")  # as Kubernetes makes them
    monkeypatch.setenv("CHANGEFEED_PIPELINE__DIRECTORY", "tables")  # of the pipeline beside
    assert HostFlags().settings().web.port == 0
    monkeypatch.setenv("CHANGEFEED_LEASE__EXPIRATION", "5")
    assert mistake_of(HostFlags()).startswith(
        "the environment has CHANGEFEED_LEASE__EXPIRATION, but there is no section 'lease' "
        "of settings: there are backends, cosmos, feed, host, leases,"
    )


@pytest.mark.parametrize(
    ("variable", "value", "form"),
    [
        ("CHANGEFEED_WEB__PIPELINES", "http://x:1", 'A list is written as ["a", "b"]'),
        ("CHANGEFEED_OBSERVER__OPTIONS", "{", 'A table is written as {"a": 1}'),
        ("changefeed_observer", "{", "as in CHANGEFEED_LOG__LEVEL=debug"),
    ],
)
def test_a_variable_that_must_be_json_and_is_not_is_named(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, form: str
) -> None:
    monkeypatch.setenv(variable, value)
    monkeypatch.setenv("CHANGEFEED_FEED__ADDRESS", "eventlog:x")  # which is no JSON, too
    text = mistake_of(HostFlags())
    assert text.startswith(f"{variable} in the environment must be JSON, and is not: ")
    assert text.endswith(form)


@pytest.mark.parametrize(
    ("variable", "name"),
    [
        ("CHANGEFEED_LEASES__RENEW__INTERVAL", "leases.renew"),
        ("CHANGEFEED_BACKENDS__A", "backends.a"),
    ],
)
def test_a_variable_is_named_where_there_is_a_file_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, name: str
) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[leases]\nexpiration = 31\n[backends.b]\nx = 1\n")
    monkeypatch.setenv(variable, "5")
    assert f"{name} (from {variable}): " in mistake_of(HostFlags(config=file))


def test_a_file_may_begin_with_the_mark_of_its_encoding(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text("[leases]\nexpiration = 31\n", "utf-8-sig")
    assert HostFlags(config=file).settings().leases.expiration == 31


def test_a_whole_section_in_the_environment_must_be_json(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHANGEFEED_LEASES", "{expiration")
    assert "Set single values, as in CHANGEFEED_LOG__LEVEL=debug" in mistake_of(HostFlags())


@pytest.mark.parametrize(
    ("made", "says"),
    [
        (None, "there is no file"),
        (b"[leases\n", "is no TOML: "),
        (b"\xff\xfe", "cannot be read: "),
    ],
)
def test_a_file_that_is_no_settings_is_named(
    tmp_path: Path, made: bytes | None, says: str
) -> None:
    file = tmp_path / "c.toml"
    if made is not None:
        file.write_bytes(made)
    text = mistake_of(HostFlags(config=file))
    assert str(file) in text
    assert says in text


@pytest.mark.parametrize(
    "text", [f"a = {'9' * 5000}", f"a = {'[' * 5000}", "a" * 10 + ".a" * 5000]
)
def test_a_file_that_no_parser_takes_is_no_toml(tmp_path: Path, text: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(text)
    assert f"{file} is no TOML: " in mistake_of(HostFlags(config=file))


@pytest.mark.parametrize("value", ["9" * 5000, "9" * 30, "[" * 50_000])
@pytest.mark.parametrize("name", ["feed.page_size", "observer.max_unacknowledged"])
def test_a_number_that_is_too_large_is_refused(name: str, value: str) -> None:
    text = mistake_of(HostFlags(sets=[f"{name}={value}"]))
    assert f"{name} (from the command line): should be " in text
    assert len(text) < 300


def test_a_section_in_the_environment_that_is_too_deep_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHANGEFEED_LEASES", "[" * 50_000)
    assert "CHANGEFEED_LOG__LEVEL=debug" in mistake_of(HostFlags())


@pytest.mark.parametrize(
    ("toml", "line"),
    [
        (
            "[leases]\nexpiration = [1]\n",
            "leases.expiration ({}): should be a valid number; it is a list",
        ),
        (
            "[cosmos]\nkey = {a = 's3cret'}\n",
            "cosmos.key ({}): should be a valid string",
        ),
        (
            "[leases]\nexpiration = 2026-01-31\n",
            "leases.expiration ({}): should be a valid number; it is 2026-01-31",
        ),
        (
            "[leases]\nexpiration = true\n",
            "leases.expiration ({}): should be a number; it is True",
        ),
        (
            "[feed]\npage_size = true\n",
            "feed.page_size ({}): should be a number; it is True",
        ),
        (
            "[feed]\nmax_poll_interval = false\n",
            "feed.max_poll_interval ({}): should be a number; it is False",
        ),
        (
            "leases = 5\n",
            (
                "leases ({}): should be a section with settings of its own, as in [leases]; "
                "it is 5"
            ),
        ),
    ],
)
def test_a_value_of_a_wrong_type_is_named_with_where_it_comes_from(
    tmp_path: Path, toml: str, line: str
) -> None:
    file = tmp_path / "c.toml"
    file.write_text(toml)
    (found,) = mistake_of(HostFlags(config=file)).splitlines()[1:]
    assert found == f"  {line.format(f'from {file}')}"


def test_a_whole_section_of_a_wrong_type_names_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHANGEFEED_LEASES", '{"expiration": null}')
    assert mistake_of(HostFlags()).splitlines()[1:] == [
        "  leases.expiration (from CHANGEFEED_LEASES): should be a valid number; it is null"
    ]


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("CHANGEFEED_LEASES_EXPIRATION", "CHANGEFEED_LEASES__EXPIRATION"),
        ("changefeed_observer_retry_max_delay", "CHANGEFEED_OBSERVER__RETRY__MAX_DELAY"),
        ("CHANGEFEED_WEB_PORT", "CHANGEFEED_WEB__PORT"),
    ],
)
def test_a_variable_with_single_underscores_is_not_ignored_in_silence(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    meant: str,
) -> None:
    monkeypatch.setenv(variable, "20")
    monkeypatch.setenv("CHANGEFEED_WEB__BIND", "::1")
    HostFlags().settings()
    (said,) = caplog.messages
    assert said.startswith(f"{variable} in the environment is no setting: write it as {meant},")


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CHANGEFEED_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
        ("CHANGEFEED_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("CHANGEFEED_SERVICE_HOST", "10.0.0.1"),
        ("CHANGEFEED_WEB_PORT", "tcp://10.0.0.1:8080"),  # of a service changefeed-web
        ("CHANGEFEED_WEB_PORT", "udp://10.0.0.1:8080"),
        ("CHANGEFEED_WEB_PORT", "sctp://10.0.0.1:8080"),
    ],
)
def test_variables_that_kubernetes_makes_are_no_settings(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    value: str,
) -> None:
    monkeypatch.setenv(variable, value)
    HostFlags().settings()
    assert caplog.messages == []


def test_a_directory_is_no_file_of_settings(tmp_path: Path) -> None:
    assert "cannot be read" in mistake_of(HostFlags(config=tmp_path))


@pytest.mark.parametrize("text", ["expiration", "=5"])
def test_a_setting_without_a_value_is_refused_with_the_form(text: str) -> None:
    assert mistake_of(HostFlags(sets=[text])) == f"--set {text}: write it as section.key=value"


@pytest.mark.parametrize(
    "sets",
    [
        ["leases.expiration=50", "leases={}"],
        ["leases={}", "leases.expiration=50"],
        ["leases.expiration=40", 'leases={"expiration": 50}'],
        ['leases={"expiration": 40}', "leases.expiration=50"],
        ['leases={"expiration": 50}', 'leases={"renew_interval": 9}'],
    ],
)
def test_a_section_that_is_set_later_takes_nothing_away(sets: list[str]) -> None:
    assert HostFlags(sets=sets).settings().leases.expiration == 50


def test_a_value_within_a_value_is_refused() -> None:
    assert "is set within a value" in mistake_of(HostFlags(sets=["web=x", "web.port=1"]))


def test_without_anything_said_settings_are_the_defaults() -> None:
    assert HostFlags().settings().model_dump() == Settings().model_dump()


def test_to_create_the_lease_container_is_a_flag_that_children_get_as_well() -> None:
    choices = HostFlags(create_leases=True)
    assert choices.settings().leases.create_container
    assert list(choices.arguments_of_child()) == ["--create-lease-container"]
    assert not HostFlags().settings().leases.create_container


def test_secrets_of_cosmos_are_taken_from_the_environment_and_shown_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHANGEFEED_COSMOS__KEY", "c2VjcmV0")
    monkeypatch.setenv("CHANGEFEED_COSMOS__CONNECTION_STRING", "")
    settings = HostFlags().settings()
    assert settings.cosmos.access == CosmosAccess(key="c2VjcmV0")
    assert "c2VjcmV0" not in repr(settings) + str(settings) + settings.model_dump_json()


def test_secrets_are_read_from_files_as_they_are_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key"
    file.write_text("c2VjcmV0\n")
    monkeypatch.setenv("CHANGEFEED_COSMOS__KEY_FILE", str(file))
    assert HostFlags().settings().cosmos.access == CosmosAccess(key="c2VjcmV0")
    assert CosmosAccess.of(os.environ) == CosmosAccess(key="c2VjcmV0")
    file.write_text("cm90YXRlZA==\n")
    assert HostFlags().settings().cosmos.access.key == "cm90YXRlZA=="


@pytest.mark.parametrize(
    ("variable", "value", "line"),
    [
        ("WEB__TOKEN", "hunter2", "web.token ({}): should have at least 16 characters"),
        ("COSMOS", '"hunter2"', "cosmos ({}): should be a section with settings of its own,"),
        ("WEB", '["hunter2"]', "web ({}): should be a section with settings of its own,"),
        ("BACKENDS__REDIS", "hunter2", "backends.redis ({}): should be a valid dictionary"),
        ("BACKENDS", '{"redis": "hunter2"}', "backends.redis ({}): should be a valid dict"),
        ("COSMOS", '{"key": "hunter2"', "{} in the environment must be JSON, and is not: "),
    ],
)
def test_a_secret_that_is_wrong_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, line: str
) -> None:
    name = f"CHANGEFEED_{variable}"
    monkeypatch.setenv(name, value)
    text = mistake_of(HostFlags())
    assert line.format(name if line.startswith("{}") else f"from {name}") in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    "toml", ["[web]\ntoken = 1234567", "cosmos = 1234567", "[cosmos]\nkey = [1234567]"]
)
def test_a_secret_in_a_file_is_not_shown_either(tmp_path: Path, toml: str) -> None:
    file = tmp_path / "c.toml"
    file.write_text(toml)
    assert "1234567" not in mistake_of(HostFlags(config=file))
    assert "1234567" not in mistake_of(HostFlags(sets=["web.token=1234567"]))


@pytest.mark.parametrize("text", [None, "", " \n"])
def test_a_secrets_file_without_a_secret_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    file = tmp_path / "connection"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("CHANGEFEED_COSMOS__CONNECTION_STRING_FILE", str(file))
    settings = HostFlags().settings()
    with pytest.raises(UserError, match=str(file)):
        _ = settings.cosmos.access
    with pytest.raises(UserError, match=str(file)):
        CosmosAccess.of(os.environ)


def test_a_secret_and_a_file_for_it_are_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEFEED_COSMOS__KEY", "c2VjcmV0")
    monkeypatch.setenv("CHANGEFEED_COSMOS__KEY_FILE", "/run/secrets/key")
    text = mistake_of(HostFlags())
    assert "set key or key_file, not both" in text
    assert "c2VjcmV0" not in text

"""What is said of settings, addresses and what every process has."""

import os
from pathlib import Path
from typing import Final
from unittest.mock import patch

from changefeed.cli.host_flags import HostFlags
from changefeed.feeds.backend import FeedBackend
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.memory import BACKEND as MEMORY
from changefeed.runtime.backends import BackendTable, BuiltIn, own_settings
from changefeed.runtime.paths import expanded
from changefeed.runtime.telemetry import telemetry

from .table import Case, Table

RUNTIME: Final = Table("Settings and what every process has")


def _settings(toml: str | None = "", sets: list[str] | None = None, **environ: str) -> Case:
    """Return a case that reads settings from a file, the environment and the command line."""

    def case(folder: Path) -> object:
        file = folder / "c.toml"
        if toml is not None:
            file.write_text(toml)
        given = {f"CHANGEFEED_{name}": value for name, value in environ.items()}
        with patch.dict(os.environ, given):
            return HostFlags(config=file, sets=sets).settings()

    return case


_TWO: Final = "[processors.a.leases]\naddress = 'sqlite:/a'\n[processors.b]\n"

for _cause, _case in {
    "settings that are wrong in a file, a variable and a flag": _settings(
        "[feed]\npage_size = 0", ["leases.expiration=-5"], WEB__PORT="eighty"
    ),
    "a start without a zone": _settings(sets=["feed.start=2026-01-31"]),
    "a setting with a typo": _settings(sets=["leases.expiraton=5"]),
    "several processors where one is meant": _settings(_TWO + "leases.address = 'sqlite:/b'"),
    "a processor that keeps its leases where another does": _settings(
        f"{_TWO}leases.address = 'sqlite:/a'"
    ),
    "a wrong setting of a processor": _settings("[processors.a.feed]\npage_size = 0"),
    "a section that no processor has": _settings("[processors.a.web]\nport = 1"),
    "a name that no processor can have": _settings("[processors.'A b'.feed]"),
    "a processor in the environment as a whole": _settings(PROCESSORS__A="{}"),
    "a list where a number is wanted": _settings("[leases]\nexpiration = [1]"),
    "a truth where a number is wanted": _settings("[leases]\nexpiration = true"),
    "a number where a section is wanted": _settings("leases = 5"),
    "a token that is too short": _settings(WEB__TOKEN="hunter2"),
    "a key beside a file with a key": _settings(COSMOS__KEY="a", COSMOS__KEY_FILE="/b"),
    "a section in the environment that there is not": _settings(LEASE__EXPIRATION="5"),
    "a list in the environment that is no JSON": _settings(WEB__PIPELINES="http://x:1"),
    "a table in the environment that is no JSON": _settings(OBSERVER__OPTIONS="{"),
    "a section in the environment that is no JSON": _settings(LEASES="{expiration"),
    "a flag without a value": _settings(sets=["expiration"]),
    "a flag within the value of another": _settings(sets=["web=x", "web.port=1"]),
    "a file of settings that is not there": _settings(None),
    "a file of settings that is no TOML": _settings("[leases"),
}.items():
    RUNTIME.says(_cause)(_case)


@RUNTIME.says("variables of OpenTelemetry that it cannot use")
def _odd_variables() -> None:
    odd = {
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://me:secret@collector:port",
        "OTEL_EXPORTER_OTLP_HEADERS": "Bearer secret",
        "OTEL_METRIC_EXPORT_INTERVAL": "abc",
    }
    with telemetry("changefeed", "anna", odd):
        pass


_HERE: Final = "tests.unit.runtime.test_backends:BACKEND"
_TABLE: Final = BackendTable(
    FeedBackend,
    what="a feed",
    group="changefeed.tried",
    built_in={
        "here": BuiltIn(target=_HERE),
        "hidden": BuiltIn(target=_HERE, listed=False),
        "away": BuiltIn(target="no.such:BACKEND", package="no_such_client", extra="away"),
    },
    refuse=FeedRefused,
)
RUNTIME.each(
    _TABLE.find,
    {
        "an address without a place": "here:",
        "an address with a scheme that there is not": "kafka:x",
        "an address whose extra is not installed": "away:x",
        "an address with a NUL": "here:a\0b",
        "an address with bytes that are no text": "here://\udcff/x",
        "an address with half an IPv6 address": "here://[",
        "an address with a server that cannot be": "here://a..b:1/x",
    },
)


@RUNTIME.says("settings of a backend that has none")
def _settings_for_none() -> object:
    return own_settings(MEMORY, {"memory": {"size": 1}})


@RUNTIME.says("a home that nobody has")
def _no_home() -> object:
    return expanded("~nobody-has-it/log")

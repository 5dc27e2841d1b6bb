"""What is said of a PostgreSQL or Redis server before hosts keep leases there."""

from typing import Any

import pytest

from changefeed.feeds.backend import OpenOptions
from changefeed.runtime.diagnostics import Severity
from changefeed.runtime.errors import StoreRefused, StoreUnavailable
from changefeed.stores.postgres.diagnostics import server_diagnostics
from changefeed.stores.redis.address import RedisAddress
from changefeed.stores.redis.diagnostics import require_fit

POSTGRES = {
    "version": "15.8",
    "number": 150008,
    "synchronous_commit": "on",
    "fsync": "on",
    "full_page_writes": "on",
}
REDIS = {"role": "master", "maxmemory_policy": "noeviction", "aof_enabled": 1}
FINE, WARNING, PROBLEM = Severity.FINE, Severity.WARNING, Severity.PROBLEM


@pytest.mark.parametrize(
    ("settings", "server", "durability"),
    [
        ({}, FINE, FINE),
        ({"number": 110022}, WARNING, FINE),  # a version without fixes
        *(
            ({"synchronous_commit": x}, FINE, FINE)
            for x in ("local", "remote_write", "remote_apply")
        ),
        ({"synchronous_commit": "off"}, FINE, WARNING),  # nothing waits for a commit
        *(  # a power cut destroys it
            ({x: "off", "synchronous_commit": "off"}, FINE, PROBLEM)
            for x in ("fsync", "full_page_writes")
        ),
    ],
)
def test_a_postgresql_is_judged_by_its_version_and_by_what_a_commit_waits_for(
    settings: dict[str, Any], server: Severity, durability: Severity
) -> None:
    said = {x.about: x.severity for x in server_diagnostics({**POSTGRES, **settings})}
    assert said == {"server": server, "durability": durability}


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"maxmemory_policy": "allkeys-lru"}, StoreRefused),
        ({"maxmemory_policy": "allkeys-random"}, StoreRefused),
        ({"role": "slave"}, StoreUnavailable),
    ],
)
def test_a_redis_that_may_lose_leases_is_refused(
    settings: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        require_fit({**REDIS, **settings}, RedisAddress(url="redis://h"), OpenOptions())


def test_a_redis_that_a_restart_empties_keeps_leases_and_no_changes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    address, empties = RedisAddress(url="redis://h"), {**REDIS, "aof_enabled": 0}
    require_fit(empties, address, OpenOptions(must_exist=True))
    assert caplog.messages == [], "a command that looks says nothing of it"
    require_fit(empties, address, OpenOptions())
    assert "what=durability" in caplog.text
    require_fit({**REDIS, "aof_enabled": 1}, address, OpenOptions(keeps_changes=True))
    with pytest.raises(StoreRefused, match="appendonly yes"):
        require_fit(empties, address, OpenOptions(keeps_changes=True))

"""What a host says of the settings that a fleet should have alike."""

import json
from typing import Any

import pytest

from changefeed.host.fleet_settings import shared_settings
from changefeed.host.settings import Settings


def shared(**sections: Any) -> Any:
    return json.loads(shared_settings(Settings(**sections)))


def test_hosts_that_differ_in_name_and_address_say_the_same() -> None:
    one = shared(host={"name": "a"}, web={"port": 8080}, log={"level": "debug"})
    assert one == shared(host={"name": "b"})
    assert one["leases.expiration"] == 30.0


@pytest.mark.parametrize(
    ("name", "sections"),
    [
        ("feed.start", {"feed": {"start": "2026-01-01T00:00:00Z"}}),
        ("leases.expiration", {"leases": {"expiration": 60}}),
        ("leases.max_handoff_time", {"leases": {"max_handoff_time": 0}}),
        ("observer.name", {"observer": {"name": "log"}}),
        ("observer.checkpoint", {"observer": {"checkpoint": "manual"}}),
        ("observer.options", {"observer": {"options": {"url": "http://a"}}}),
    ],
)
def test_what_a_fleet_should_have_alike_is_said(name: str, sections: Any) -> None:
    usual, other = shared(), shared(**sections)
    assert {x for x in usual if usual[x] != other[x]} == {name}


def test_options_and_passwords_of_addresses_are_not_written_down() -> None:
    letters = "postgresql://ann:s3cret@db/letters"
    text = shared_settings(
        Settings.model_validate(
            {
                "observer": {
                    "options": {"token": "s3cret"},
                    "on_failure": "dead-letter",
                    "dead_letters": letters,
                }
            }
        )
    )
    assert "s3cret" not in text
    assert json.loads(text)["observer.dead_letters"].startswith("postgresql://ann:")

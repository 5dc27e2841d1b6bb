"""Addresses of collections, and what opens them."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from changefeed.feeds.addresses import FEEDS
from changefeed.feeds.errors import FeedRefused
from changefeed.log.client.access import BrokerAccess, BrokersSettings
from changefeed.log.client.address import parse_address
from changefeed.runtime.errors import UserError
from changefeed.runtime.secret import Secret


@pytest.mark.parametrize(
    ("scheme", "place", "urls"),
    [
        ("brokers", "//h:1/orders", ("http://h:1",)),
        ("brokers", "//a,b:2,a/o", ("http://a:7070", "http://b:2")),
        ("brokers+tls", "//[::1]:5/o", ("https://[::1]:5",)),
    ],
)
def test_an_address_names_brokers_and_a_collection(
    scheme: str, place: str, urls: tuple[str, ...]
) -> None:
    found = parse_address(scheme, place)
    assert found.urls == urls
    assert FEEDS.name(f"{scheme}:{place}") == "brokers"
    assert found.collection == place.rpartition("/")[2]


@pytest.mark.parametrize(
    "place",
    [
        "h:1/orders",
        "//h:1",
        "//h:1/",
        "///orders",
        "//h:0/o",
        "//h:99999/o",
        "//h:1/A b",
        "//u:p@h:1/o",
        "//h:1/a/b",
    ],
)
def test_what_is_no_address_is_refused(place: str) -> None:
    with pytest.raises(FeedRefused):
        parse_address("brokers", place)


def test_a_token_comes_from_the_environment_or_a_file_and_is_not_shown(tmp_path: Path) -> None:
    given = BrokerAccess.of_environment({"CHANGEFEED_BACKENDS__BROKERS__TOKEN": "secret"})
    assert given.headers == {"Authorization": "Bearer secret"}
    assert given.call_timeout == 5.0
    assert "secret" not in repr(given)
    file = tmp_path / "token"
    file.write_text("from a file\n")
    assert BrokerAccess.of(
        BrokersSettings.model_validate({"token_file": file})
    ).token == Secret.of("from a file")
    with pytest.raises(UserError, match="cannot be read"):
        BrokerAccess.of(BrokersSettings.model_validate({"token_file": tmp_path / "none"}))
    assert "secret" not in repr(BrokersSettings(token=SecretStr("secret")))
    with pytest.raises(FeedRefused, match="PEM"):
        BrokerAccess(ca_file=file).tls()


def test_a_read_cannot_wait_for_longer_than_a_broker_lets_it() -> None:
    with pytest.raises(UserError, match="wait"):
        BrokerAccess.of_environment({"CHANGEFEED_BACKENDS__BROKERS__WAIT": "31"})

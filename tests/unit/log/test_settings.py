"""Settings of a broker: where they come from, what is wrong, and that the page has them all."""

import re
from math import inf
from pathlib import Path

import pytest

from changefeed.host.settings import load_settings
from changefeed.log.brokers.settings import BrokerSettings, load_broker_settings
from changefeed.runtime.errors import UserError
from changefeed.runtime.secret import Secret

ROOT = Path(__file__).parents[3]


def given(**web: object) -> BrokerSettings:
    return load_broker_settings(None, {"broker": {"cluster": "file:///c"}, "web": web})


def test_a_broker_listens_on_this_machine_only_unless_told_otherwise() -> None:
    assert given().web.bind == "127.0.0.1"
    assert given().web.secret is None


@pytest.mark.parametrize(
    ("cluster", "puts"), [("file:///c", inf), ("s3://b/p", 5.0), ("az://c", 5.0)]
)
def test_objects_are_fewer_where_each_costs_a_request(cluster: str, puts: float) -> None:
    assert load_broker_settings(None, {"broker": {"cluster": cluster}}).core.puts == puts


def test_the_environment_sets_a_broker_and_a_host_beside_it_does_not_mind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CHANGEFEED_BROKER__BROKER__CLUSTER", "file:///c")
    monkeypatch.setenv("CHANGEFEED_BROKER__WEB__TOKEN", "secret")
    settings = load_broker_settings(None, {})
    assert (settings.broker.cluster, settings.web.secret) == ("file:///c", Secret.of("secret"))
    assert "secret" not in repr(settings)
    assert load_settings(None, {}).web.port == 0


def test_a_broker_shows_ten_signs_of_life_until_it_would_count_as_dead() -> None:
    flags = {"broker": {"cluster": "file:///c"}, "membership": {"expiration": 3}}
    core = load_broker_settings(None, flags).core
    assert (core.expiration, core.heartbeat) == (3.0, 0.3)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({}, "--cluster"),
        ({"broker": {"cluster": "file:///c"}, "membership": {"expiration": 0.5}}, "expiration"),
        ({"broker": {"cluster": "file:///c"}, "web": {"key_file": "k"}}, "certificate_file"),
        (
            {"broker": {"cluster": "file:///c"}, "web": {"token": "a", "token_file": "b"}},
            "not both",
        ),
        ({"broker": {"cluster": "file:///c", "nmae": "x"}}, "did you mean broker.name"),
    ],
)
def test_what_is_wrong_is_named(flags: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words):
        load_broker_settings(None, flags)


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(UserError, match="is empty"):
        _ = given(token_file=tmp_path / "empty").web.secret
    with pytest.raises(UserError, match="cannot be read"):
        _ = given(token_file=tmp_path / "none").web.secret
    with pytest.raises(UserError, match="PEM"):
        _ = given(certificate_file=tmp_path / "empty").web.tls


def test_the_page_of_metrics_has_every_one_of_brokers() -> None:
    page = (ROOT / "docs/metrics.md").read_text()
    source = "".join(
        (ROOT / "log/brokers" / x).read_text() for x in ("metrics.py", "metered_store.py")
    )
    named = set(re.findall(r'"(changefeed\.broker\.[a-z_.]+)"', source))
    gauges = set(re.findall(r'^    \("([a-z.]+)", ', source, re.MULTILINE))
    assert len(gauges) == 16
    told = set(re.findall(r"`(changefeed\.broker\.[a-z_.]+)`", page))
    assert told == named | {f"changefeed.broker.{x}" for x in gauges}


@pytest.mark.parametrize("address", [None, "", "b-0.brokers:7070", "b0", "[::1]:7070"])
def test_a_broker_may_be_reached_by_another_address(address: str | None) -> None:
    assert given(advertise=address).web.advertise == address


@pytest.mark.parametrize("address", ["b0:7070,b1:7070", "http://b0:7070", "\udcff", "b0:99999"])
def test_an_address_at_which_no_broker_can_be_reached_is_refused(address: str) -> None:
    with pytest.raises(UserError, match="should be HOST:PORT, as others reach this broker"):
        given(advertise=address)

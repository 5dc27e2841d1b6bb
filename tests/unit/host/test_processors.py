"""The settings of several processors in one process."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from changefeed.host.settings import Settings, load_processors, load_settings
from changefeed.runtime.errors import UserError

TWO = """
[feed]
page_size = 50
[leases]
expiration = 20
[observer.retry]
max_delay = 9
[web]
port = 8080
[processors.orders.feed]
address = "eventlog:/orders"
[processors.orders.leases]
address = "sqlite:/orders.db"
[processors.to-search.feed]
page_size = 70
[processors.to-search.observer]
name = "count"
retry = { attempts = 7 }
[processors.to-search.cosmos]
key = "c2VjcmV0"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "c.toml"


def loaded(file: Path, toml: str, **flags: object) -> Mapping[str, Settings]:
    file.write_text(toml)
    return load_processors(file, flags)


def mistake_of(file: Path, toml: str, **flags: object) -> str:
    with pytest.raises(UserError) as caught:
        loaded(file, toml, **flags)
    return str(caught.value)


def test_a_processor_takes_from_the_top_of_the_file_what_it_does_not_say(file: Path) -> None:
    found = loaded(file, TWO)
    orders, search = found["orders"], found["to-search"]
    assert [*found] == ["orders", "to-search"]
    assert (orders.feed.address, orders.feed.page_size) == ("eventlog:/orders", 50)
    assert (search.feed.page_size, search.observer.name) == (70, "count")
    assert search.observer.retry.attempts == 7
    assert search.observer.retry.max_delay == orders.observer.retry.max_delay == 9
    assert search.leases.address.endswith("data/leases.db")
    assert {x.leases.expiration for x in found.values()} == {20}
    assert {x.web.port for x in found.values()} == {8080}
    assert (orders.cosmos.access.key, search.cosmos.key is None) == (None, False)


def test_in_each_place_what_is_said_for_a_processor_goes_before_what_is_said_for_all(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pages(**flags: object) -> list[int]:
        return [x.feed.page_size for x in loaded(file, TWO, **flags).values()]

    assert pages() == [50, 70]
    monkeypatch.setenv("CHANGEFEED_PROCESSORS__TO_SEARCH__FEED__PAGE_SIZE", "71")
    assert pages() == [50, 71]
    monkeypatch.setenv("CHANGEFEED_FEED__PAGE_SIZE", "60")
    assert pages() == [60, 71]
    assert pages(feed={"page_size": 80}) == [80, 80]
    own = {"orders": {"feed": {"page_size": 90}}}
    assert pages(feed={"page_size": 80}, processors=own) == [90, 80]


def test_the_environment_alone_can_name_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEFEED_PROCESSORS__A__LEASES__ADDRESS", "sqlite:/a")
    monkeypatch.setenv("CHANGEFEED_PROCESSORS__B_2__LEASES__ADDRESS", "sqlite:/b")
    found = load_processors(None, {})
    assert {name: x.leases.address for name, x in found.items()} == {
        "a": "sqlite:/a",
        "b_2": "sqlite:/b",
    }


def test_one_processor_needs_not_be_chosen_and_of_several_one_is(file: Path) -> None:
    assert [*loaded(file, "[feed]\npage_size = 3")] == [""]
    assert load_settings(file, {}).feed.page_size == 3
    assert [*loaded(file, "[processors.a.feed]\npage_size = 4")] == ["a"]
    assert load_settings(file, {}).feed.page_size == 4
    file.write_text(TWO)
    assert load_settings(file, {}, ["to-search"]).feed.page_size == 70
    with pytest.raises(UserError, match="orders, to-search"):
        load_settings(file, {})
    with pytest.raises(UserError, match=r"'order'.*orders, to-search"):
        load_processors(file, {}, ["order"])


@pytest.mark.parametrize(
    ("toml", "environ", "said"),
    [
        ("[processors.a.feed]\npage_sise = 1", {}, "processors.a.feed.page_sise (from {file})"),
        ("[processors.a.feed]\npage_size = 0", {}, "processors.a.feed.page_size (from {file})"),
        ("feed.page_size = 0\n[processors.a.leases]", {}, "\n  feed.page_size (from {file})"),
        ("[processors.a.web]\nport = 1", {}, "processors.a.web"),
        ("[processors.a.leases]\nrenewal = 1", {}, "processors.a.leases.renewal (from {file})"),
        ("[processors]\na = 5", {}, "processors.a"),
        ("processors = 5", {}, "processors"),
        ("[processors.Orders.feed]", {}, "'Orders'"),
        ("[processors.'a b'.feed]", {}, "'a b'"),
        ("[processors.'a/../b'.feed]", {}, "'a/../b'"),
        ("[processors.''.feed]", {}, "''"),
        ("[processors.a__b.feed]", {}, "'a__b'"),
        (f"[processors.{'a' * 64}.feed]", {}, "cannot be the name"),
        ("[processors.a-b.feed]", {"A_B__FEED__PAGE_SIZE": "0"}, "(from {variable})"),
        ("", {"A__FEED__PAGE_SISE": "1"}, "processors.a.feed.page_sise (from {variable})"),
        ("", {"A__WEB__PORT": "1"}, "processors.a.web"),
        ("", {"A__OBSERVER__OPTIONS__PATH": "x"}, "{variable}"),
        ("", {"A__OBSERVER__OPTIONS": "{"}, "{variable} in the environment must be JSON"),
        ("", {"A": "{}"}, "{variable}"),
        ("[processors.a.cosmos]\nkey = [7654321]", {}, "processors.a.cosmos.key"),
    ],
)
def test_what_is_wrong_in_a_processor_is_named(
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    toml: str,
    environ: Mapping[str, str],
    said: str,
) -> None:
    given = {f"CHANGEFEED_PROCESSORS__{x}": value for x, value in environ.items()}
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    text = mistake_of(file, toml)
    assert said.format(file=file, variable=next(iter(given), None)) in text
    assert "7654321" not in text
    assert len(text.splitlines()) <= 2, "nothing else is wrong"


def test_two_processors_that_keep_leases_in_one_place_are_refused(file: Path) -> None:
    both = "[processors.a.feed]\naddress = 'eventlog:/a'\n[processors.b.feed]\n"
    text = mistake_of(file, both)
    assert "processors a and b" in text
    assert "[processors.b.leases]" in text
    fleets = "".join(
        f"[processors.{x}.leases]\naddress = 'postgresql://{x}@db/app?fleet={x}'\n"
        for x in "ab"
    )
    assert len(loaded(file, fleets)) == 2
    assert "sqlite:/c" in mistake_of(file, f"leases.checkpoints = 'sqlite:/c'\n{fleets}")
    assert len(loaded(file, both + "[leases]\naddress = 'memory:'\n")) == 2

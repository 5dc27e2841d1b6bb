"""The table of backends: what an address leads to, and what is said where it does not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from changefeed.feeds.addresses import FEEDS, open_feed
from changefeed.feeds.backend import FeedBackend, OpenOptions, backend_sections
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.memory import BACKEND as MEMORY
from changefeed.leases.addresses import open_container
from changefeed.runtime.backends import BackendTable, BuiltIn, own_settings
from changefeed.runtime.errors import UserError
from changefeed.stores.addresses import STORES
from tests.support.thirdparty import importable, site_with_shelf, with_metadata

pytestmark = pytest.mark.real_time

HERE = "tests.unit.runtime.test_backends:BACKEND"


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int = 1


BACKEND = FeedBackend(name="here", place="PLACE", open=MEMORY.open, settings=Settings)


def table(**built_in: BuiltIn) -> BackendTable[FeedBackend]:
    return BackendTable(
        FeedBackend,
        what="a feed",
        group="changefeed.tried",
        built_in=built_in,
        refuse=FeedRefused,
    )


@pytest.fixture
def shelf(tmp_path: Path) -> Path:
    return site_with_shelf(tmp_path / "site")


def test_an_address_leads_to_its_backend() -> None:
    backend, address = table(here=BuiltIn(target=HERE)).find("here:a:b")
    assert backend is BACKEND
    assert (address.scheme, address.place, str(address)) == ("here", "a:b", "here:a:b")


@pytest.mark.parametrize(
    "address",
    [
        *("here:", "here:a\0b", "here://\udcff/x", "here:\ud800", "here://[", "elsewhere://["),
        *("here://u:p@a..b:1,c/x", f"here://ok,{'a' * 64}/x"),
    ],
)
def test_an_address_that_no_client_could_read_is_refused(address: str) -> None:
    with pytest.raises(FeedRefused):
        table(here=BuiltIn(target=HERE)).find(address)


@pytest.mark.parametrize(
    "address",
    [
        "here:\udcff",  # a directory whose name is no text
        f"here:{'a' * 64}",
        "here://[::1]:1,[::2]:2/x",
        f"here://u:p@%2Frun%2F{'a' * 64}/x",
        f"here://{'a' * 63}.example.:1/x",
        "here:///x",
    ],
)
def test_an_address_that_a_client_may_read_is_left_to_it(address: str) -> None:
    assert str(table(here=BuiltIn(target=HERE)).find(address)[1]) == address


def test_an_unknown_scheme_lists_the_known_ones_and_the_extras_of_others() -> None:
    away = BuiltIn(target="no.such:BACKEND", package="no_such_client", extra="away")
    hidden = BuiltIn(target=HERE, listed=False)
    found = table(here=BuiltIn(target=HERE), away=away, memory=hidden)
    with pytest.raises(FeedRefused, match=r"here:…, away:… .*\[away\]'\)$"):
        found.find("kafka:x")
    with pytest.raises(FeedRefused, match=r"no_such_client: pip install .*\[away\]'"):
        found.find("away:x")


def test_a_module_of_ours_that_is_missing_is_a_bug_and_not_an_extra() -> None:
    with pytest.raises(ModuleNotFoundError):
        table(away=BuiltIn(target="no.such:BACKEND")).find("away:x")


def test_an_entry_point_adds_a_scheme_and_takes_over_none_of_ours(tmp_path: Path) -> None:
    added = {"changefeed.tried": {"other": HERE, "here": "json:loads"}}
    site = with_metadata(tmp_path, "other", added)
    found = table(here=BuiltIn(target=HERE))
    with importable(site):
        assert found.schemes() == ["here", "other"]
        assert found.find("here:x")[0] is found.find("other:x")[0] is BACKEND
        assert found.name("other:x") == "here"
    assert found.schemes() == ["here"]
    assert found.name("other:x") is None


def test_two_packages_with_one_scheme_are_refused_by_name(tmp_path: Path) -> None:
    group = "changefeed.tried"
    with_metadata(tmp_path, "one", {group: {"x": HERE}})
    with_metadata(tmp_path, "two", {group: {"x": "json:loads"}})
    with importable(tmp_path), pytest.raises(FeedRefused, match="in one and two: uninstall"):
        table().find("x:y")


@pytest.mark.parametrize(
    ("target", "advice"),
    [
        ("no_such_module:BACKEND", "comes from other.*No module named 'no_such_module'"),
        ("json:no_such_name", "no_such_name"),
        ("json:loads", r"json:loads \(of other\) is no FeedBackend"),
    ],
)
def test_an_entry_point_that_is_broken_is_refused_by_name(
    tmp_path: Path, target: str, advice: str
) -> None:
    site = with_metadata(tmp_path, "other", {"changefeed.tried": {"other": target}})
    with importable(site), pytest.raises(FeedRefused, match=advice):
        table().find("other:x")


def test_a_backend_gets_its_own_settings_converted() -> None:
    sections = {"here": {"size": "7"}, "there": {"size": "no number"}}
    assert own_settings(BACKEND, sections) == Settings(size=7)
    assert own_settings(BACKEND, {}) == Settings()


def test_wrong_settings_of_a_backend_are_refused_by_name() -> None:
    for name, backend in (("size", BACKEND), ("sice", BACKEND), ("", MEMORY)):
        with pytest.raises(UserError, match=rf"backends\.{backend.name}\.?{name}: "):
            own_settings(backend, {backend.name: {name: "x"}})
    assert own_settings(MEMORY, {}) is None


def test_the_environment_speaks_to_backends() -> None:
    environ = {
        "CHANGEFEED_BACKENDS__SHELF__MAX_PAGE": "7",
        "changefeed_backends__shelf__lock_timeout": "2",
        "CHANGEFEED_BACKENDS__SHELF": "{}",
        "CHANGEFEED_LEASES__EXPIRATION": "3",
    }
    assert backend_sections(environ) == {"shelf": {"max_page": "7", "lock_timeout": "2"}}


@pytest.mark.parametrize("find", [FEEDS.find, STORES.find])
def test_our_own_backends_come_by_the_same_table(
    find: Callable[[str], tuple[object, object]],
) -> None:
    for address in ("cosmos://host/d/c", "cosmos+http://host/d/c", "memory:"):
        find(address)


async def test_a_package_brings_feed_and_leases(tmp_path: Path, shelf: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text('{"ranges": 2}\n{"append": {"key": "k", "body": "1"}}\n')
    options = OpenOptions(backends={"shelf": {"max_page": "1"}})
    with importable(shelf):
        async with open_feed(f"shelf:{journal}", options) as feed:
            assert [x.id for x in await feed.ranges()] == ["r0", "r1"]
        async with open_container(f"shelf:{tmp_path / 'leases'}", options) as leases:
            assert list(await leases.list()) == []
        with pytest.raises(UserError, match=r"backends\.shelf.lock_timeout"):
            open_container("shelf:x", OpenOptions(backends={"shelf": {"lock_timeout": 0}}))

"""The table of backends: what an address leads to, and what is said where it does not."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict

from changefeed.feeds.addresses import FEEDS
from changefeed.feeds.backend import FeedBackend
from changefeed.feeds.errors import FeedRefused
from changefeed.feeds.memory import BACKEND as MEMORY
from changefeed.runtime.backends import BackendTable, BuiltIn, own_settings
from changefeed.runtime.errors import UserError
from changefeed.stores.addresses import STORES
from tests.support.thirdparty import importable, with_metadata

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
        ("json", r"other declares 'other' as 'json', which is not of the form"),
        ("json:", r"other declares 'other' as 'json:', which is not of the form"),
        ("json:loads", r"json:loads \(of other\) is no FeedBackend"),
    ],
)
def test_an_entry_point_that_is_broken_is_refused_by_name(
    tmp_path: Path, target: str, advice: str
) -> None:
    site = with_metadata(tmp_path, "other", {"changefeed.tried": {"other": target}})
    with importable(site), pytest.raises(FeedRefused, match=advice):
        table().find("other:x")


def test_wrong_settings_of_a_backend_are_refused_by_name() -> None:
    for name, backend in (("size", BACKEND), ("sice: .*Known", BACKEND), ("", MEMORY)):
        with pytest.raises(UserError, match=rf"backends\.{backend.name}\.?{name}: "):
            own_settings(backend, {backend.name: {name[:4]: "x"}})
    assert own_settings(MEMORY, {}) is None


@pytest.mark.parametrize("find", [FEEDS.find, STORES.find])
def test_our_own_backends_come_by_the_same_table(
    find: Callable[[str], tuple[object, object]],
) -> None:
    for address in ("cosmos://host/d/c", "cosmos+http://host/d/c", "memory:"):
        find(address)

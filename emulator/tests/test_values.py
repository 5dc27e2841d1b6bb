"""The parts of the emulator that decide without I/O."""

import asyncio
import base64
import hashlib
import hmac
import sys
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, unquote

import hypothesis
import msgspec
import pytest
from azure.cosmos import partition_key as theirs
from hypothesis import strategies as st

from cosmos_emulator import DEVELOPMENT_KEY, EmulatorSettings, charges
from cosmos_emulator.address import address_of
from cosmos_emulator.auth import check_signature, key_bytes
from cosmos_emulator.calls import Emulator
from cosmos_emulator.errors import CosmosError
from cosmos_emulator.hashing import V1, V2, Component
from cosmos_emulator.json_values import UNDEFINED
from cosmos_emulator.offers import Throughput
from cosmos_emulator.partition_keys import (
    KeyDefinition,
    checked_definition,
    steps_of,
)
from cosmos_emulator.patching import patched
from cosmos_emulator.throttle import Throttle
from cosmos_emulator.visitors import is_local

NOW = 1_700_000_000.0
KEY = key_bytes(DEVELOPMENT_KEY)


ONE = KeyDefinition(paths=("/pk",))
COMPONENTS = (
    st.none()
    | st.booleans()
    | st.just(UNDEFINED)
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False).map((0.0).__add__)  # -0 is 0 here
    | st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=30)
    | st.integers(90, 200).map("ä".__mul__)
    | st.integers(90, 200).map("a".__mul__)
)


@pytest.mark.parametrize(
    ("component", "digits"),
    [
        ("", "05C1CF33970FF80800"),
        ("partitionKey", "05C1E1B3D9CD2608716273756A756A706F4C667A00"),
        ("a" * 1024, "05C1EB5921F70608" + "62" * 100 + "00"),
        (None, "05C1ED45D7475601"),
        (UNDEFINED, "05C1D529E345DC00"),
        (True, "05C1D7C5A903D803"),
        (False, "05C1DB857D857C02"),
        (-128, "05C1D73349F54C053FA0"),
        (127, "05C1DD539DDFCC05C05FE0"),
        (2**31 - 1, "05C1E1F503DFB205C1DFFFFFFFFC"),
        (5e-324, "05C1E5C91F4D3005800101010101010102"),
        (sys.float_info.max, "05C1CBE367C53005FFEFFFFFFFFFFFFFFE"),
    ],
)
def test_in_version_1_a_key_has_the_hash_that_cosmos_db_publishes(
    component: Component, digits: str
) -> None:
    assert V1.of(component) == digits


@pytest.mark.parametrize(
    ("component", "digits"),
    [
        ("p1", "062B23DEC15212F01B9A85F4E93A940C"),
        ("", "32E9366E637A71B4E710384B2F4970A0"),
        (0, "155B95BEDAC4B1E9EC1CDC9BB0DDDE58"),
        (1, "20CD98B339BA78A5D0CF6953B87070B0"),
        (True, "0E711127C5B5A8E4726AC6DD306A3E59"),
        (None, "378867E4430E67857ACE5C908374FE16"),
    ],
)
def test_a_partition_key_has_the_hash_that_cosmos_db_gives_it(
    component: Component, digits: str
) -> None:
    assert V2.of(component) == digits


def test_the_space_is_cut_evenly_where_cosmos_db_cuts_it() -> None:
    assert V2.even_cuts(1) == []
    assert V2.even_cuts(2) == [V2.middle("", "FF")] == ["1" + "F" * 31]
    assert V2.even_cuts(5)[2:] == ["2" + "6" * 30 + "4", "3" * 31 + "0"]
    assert V2.middle("1" + "F" * 31, "FF") == "2" + "F" * 31
    assert V2.middle("", "1" + "F" * 31) == "0" + "F" * 31
    assert V1.even_cuts(2) == [V1.middle("", "FF")] == ["05C1DFFFFFFFFC"]
    assert V1.middle("", "05C1DFFFFFFFFC") == "05C1CFFFFFFFF8"
    assert V1.middle("05C1DFFFFFFFFC", "FF") == "05C1E7FFFFFFFE"


@hypothesis.given(st.sets(st.text(max_size=9).map(V1.of), min_size=2, max_size=2))
def test_a_range_of_version_1_is_cut_inside(bounds: set[str]) -> None:
    low, high = sorted(bounds)
    hypothesis.assume(V1.width(low, high) > 1)
    cut = V1.middle(low, high)
    assert low < cut < high
    assert abs(V1.width(low, cut) - V1.width(cut, high)) <= 2


def test_one_and_one_point_zero_are_one_key_and_true_is_another() -> None:
    assert ONE.key(1) == ONE.key(1.0)
    assert ONE.key(1).text != ONE.key(True).text
    assert ONE.in_header("[{}]") == ONE.in_header("[]") == ONE.key(UNDEFINED)
    assert ONE.in_header("[null]") != ONE.in_header("[]")


@pytest.mark.parametrize("header", ["p", '"p"', '["a","b"]', "[[1]]", "["])
def test_a_header_that_is_no_key_is_refused(header: str) -> None:
    with pytest.raises(CosmosError) as refused:
        ONE.in_header(header)
    assert refused.value.status == 400


@hypothesis.given(COMPONENTS, st.sampled_from([1, 2]))
def test_a_key_has_the_hash_that_the_client_for_python_gives_it(
    component: Any, version: int
) -> None:
    # in version 1 that client writes null without its type, and cuts whole numbers to 32 bits
    hypothesis.assume(component is not None or version != 1)
    if isinstance(component, int) and not isinstance(component, bool):
        component = float(component)
    mine = KeyDefinition(paths=("/a",), hashing=V1 if version == 1 else V2)
    their = theirs.PartitionKey("/a", version=version)
    given: Any = {} if component is UNDEFINED else component
    found = their._get_effective_partition_key_string([given])
    assert mine.key(component).epk == str(found).upper()


@hypothesis.given(st.lists(COMPONENTS, min_size=1, max_size=3))
def test_so_has_a_hierarchical_key_and_a_prefix_of_it(components: list[Any]) -> None:
    three = KeyDefinition(paths=("/a", "/b", "/c"))
    their = theirs.PartitionKey(["/a", "/b", "/c"], kind="MultiHash")
    given = [{} if x is UNDEFINED else x for x in components]
    assert three.key(*components).epk == their._get_effective_partition_key_string(given)
    assert three.key(*components).epk.startswith(three.key(*components[:-1]).epk)
    assert three.in_header(msgspec.json.encode(given).decode()) == three.key(*components)


def test_paths_may_be_nested_and_quoted() -> None:
    assert steps_of("/a/b") == ("a", "b")
    assert steps_of('/"a b"/c') == ("a b", "c")
    assert steps_of("a") == ()


@pytest.mark.parametrize(
    "definition",
    [
        None,
        {"paths": []},
        {"paths": ["pk"]},
        {"paths": ["/a", "/b"], "kind": "Hash"},
        {"paths": ["/a", "/b", "/c", "/d"], "kind": "MultiHash"},
        {"paths": ["/a", "/a"], "kind": "MultiHash"},
        {"paths": ["/a"], "kind": "Range"},
        {"paths": ["/a"], "kind": "Hash", "version": 3},
        {"paths": ["/a"], "kind": "Hash", "version": [1]},
        {"paths": ["/a", "/b"], "kind": "MultiHash", "version": 1},
    ],
)
def test_a_partition_key_that_cannot_be_served_is_refused(definition: Any) -> None:
    with pytest.raises(CosmosError) as refused:
        checked_definition(definition)
    assert refused.value.status == 400


def sign(verb: str, kind: str, link: str, date: str) -> str:
    text = f"{verb}\n{kind}\n{link}\n{date.lower()}\n\n".encode()
    digest = base64.b64encode(hmac.new(KEY, text, hashlib.sha256).digest()).decode()
    return quote(f"type=master&ver=1.0&sig={digest}")


@pytest.mark.parametrize(
    ("path", "kind", "link"),
    [
        ("/", "", ""),
        ("/dbs", "dbs", ""),
        ("/dbs/D", "dbs", "dbs/D"),
        ("/dbs/D/colls/C/docs/", "docs", "dbs/D/colls/C"),
        ("/dbs/D/colls/C/docs/a%20b", "docs", "dbs/D/colls/C/docs/a b"),
        ("/dbs/D/colls/C/pkranges", "pkranges", "dbs/D/colls/C"),
        ("/dbs/AAAA/colls/BbBb", "colls", "bbbb"),  # by resource id, as self links are
    ],
)
def test_a_signature_over_the_link_of_a_path_is_good_for_fifteen_minutes(
    path: str, kind: str, link: str
) -> None:
    address, date = address_of(path), formatdate(NOW, usegmt=True)
    token = unquote(sign("get", kind, link, date))

    def check(verb: str = "GET", date: str = date, now: float = NOW) -> None:
        check_signature(
            key=KEY,
            verb=verb,
            kinds=address.signed_kinds,
            links=address.signed_links,
            date=date,
            token=token,
            now=now,
        )

    check()
    check(now=NOW + 14 * 60)
    with pytest.raises(CosmosError, match="403"):
        check(now=NOW + 16 * 60)
    with pytest.raises(CosmosError, match="401"):
        check(verb="PUT")
    with pytest.raises(CosmosError, match="401"):
        check(date=formatdate(NOW + 1, usegmt=True))


def test_a_patch_leaves_the_original_alone_and_works_on_arrays() -> None:
    item = {"id": "1", "list": [1, 2, 3], "n": {"a/b": 1}}
    done = patched(
        item,
        [
            {"op": "add", "path": "/list/0", "value": 0},
            {"op": "replace", "path": "/list/1", "value": 10},
            {"op": "remove", "path": "/list/3"},
            {"op": "set", "path": "/n/a~1b", "value": 2},
            {"op": "incr", "path": "/count", "value": 2},
        ],
    )
    assert done == {"id": "1", "list": [0, 10, 2], "n": {"a/b": 2}, "count": 2}
    assert item == {"id": "1", "list": [1, 2, 3], "n": {"a/b": 1}}


@pytest.mark.parametrize(
    ("policy", "count"),
    [
        ({"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": '/"_etag"/?'}]}, 5),
        ({"indexingMode": "none"}, 0),
        ({"includedPaths": [{"path": "/*"}], "excludedPaths": [{"path": "/big/*"}]}, 3),
        ({"includedPaths": [{"path": "/big/a/?"}], "excludedPaths": [{"path": "/*"}]}, 1),
        ({"includedPaths": [{"path": "/t/[]/?"}], "excludedPaths": [{"path": "/*"}]}, 2),
    ],
)
def test_the_most_specific_path_says_whether_a_value_is_indexed(
    policy: dict[str, Any], count: int
) -> None:
    item = {"id": "1", "big": {"a": 1, "b": 2}, "t": ["x", "y"]}
    assert charges.indexed_paths(policy).count(item) == count


JSON = st.recursive(
    st.none() | st.integers(0, 1) | st.sampled_from("ab"),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from("xyz"), inner),
)


def values_in(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(values_in, value.values()))
    return sum(map(values_in, value)) if isinstance(value, list) else 1


@hypothesis.given(st.dictionaries(st.sampled_from("pqr"), JSON))
def test_a_policy_that_excludes_nothing_that_is_there_counts_as_one_that_excludes_nothing(
    item: dict[str, Any],
) -> None:
    everything = {"includedPaths": [{"path": "/*"}]}
    odd = everything | {"excludedPaths": [{"path": "/nothing/*"}]}
    counts = [charges.indexed_paths(x).count(item) for x in (everything, odd)]
    assert counts == [values_in(item)] * 2


def test_charges_are_those_of_the_table_in_their_module() -> None:
    kilobyte = 1024
    assert charges.read(kilobyte) == 1
    assert charges.read(100 * kilobyte) == 10
    assert charges.write(kilobyte, 10) == 5.3
    assert charges.replace(kilobyte, 10) == 10.6
    assert charges.write(kilobyte, 0) < charges.write(kilobyte, 1)
    assert charges.query(0, 0) == 2.3
    assert charges.feed_page(0) == 1
    assert charges.feed_page(10 * kilobyte) == 2


def test_a_second_has_so_many_requests_and_then_each_is_let_in_when_there_is_room() -> None:
    throttle = Throttle()
    throttle.set({"requests_per_second": 5}, now=0.0)
    for _ in range(5):
        throttle.admit("c", now=0.0)
        throttle.spend("c", 100.0)
    with pytest.raises(CosmosError) as refused:
        throttle.admit("c", now=0.05)
    assert refused.value.retry_after_ms == 150
    throttle.admit("c", now=0.25)


def test_a_budget_fills_up_evenly_and_a_debt_has_to_be_paid() -> None:
    throttle = Throttle()
    throttle.set({"ru_per_second": 10}, now=0.0)
    throttle.admit("c", now=0.0)
    throttle.spend("c", 25.0)
    with pytest.raises(CosmosError) as refused:
        throttle.admit("c", now=1.0)
    assert (refused.value.status, refused.value.retry_after_ms) == (429, 500)
    throttle.admit("c", now=1.6)
    throttle.admit("c", now=100.0)
    throttle.spend("c", 10.0)
    with pytest.raises(CosmosError):
        throttle.admit("c", now=100.0)
    throttle.set({"ru_per_second": 10, "container": "other"}, now=100.0)
    throttle.clear()
    throttle.admit("c", now=100.0)


async def test_items_that_expire_during_a_merge_do_not_set_its_lsns_back() -> None:
    emulator = Emulator(EmulatorSettings(), clock=lambda: NOW)
    body = {"id": "c", "partitionKey": {"paths": ["/pk"]}}
    emulator.containers.create_database({"id": "d"})
    made = emulator.containers.create_container("d", body, Throughput(units=12_000))
    low, high = emulator.ranges.current(made.number)
    merging = asyncio.create_task(
        emulator.ranges.merge(made.number, [low.id, high.id], seconds=10)
    )
    await asyncio.sleep(5)
    assert emulator.ranges.advance(low.pid, items=0, size=0) == 1
    assert (await merging).lsn == 1
    emulator.close()


@pytest.mark.parametrize(
    ("peer", "local"),
    [
        *((x, True) for x in ("127.0.0.1", "127.1.2.3", "::1", "::ffff:127.0.0.1")),
        *((x, False) for x in ("10.0.0.1", "fe80::1%eth0", "::ffff:10.0.0.1", "", None)),
    ],
)
def test_splits_and_faults_are_for_this_machine_only(peer: str | None, *, local: bool) -> None:
    assert is_local(peer) == local

"""Requests that are almost right: what a careless, broken or hostile client may send.

Each begins as one that is answered, and a chance breaks some of it: the JSON, a type, a
number, a header, the path, the bytes. The same seed gives the same requests.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from tests.integration.emulator.running import DOCS

_ODD: Final[tuple[Any, ...]] = (
    *(None, True, False, 0, -1, 1.5, 2**31, 2**63, 2**70, -(2**64), 1e300, 5e-324, -0.0),
    *("", " ", "x" * 3000, "é€😀", "\x00", "'", '"', "/", "//", "a/b", "#?\\", "\ud7ff"),
    *("-1", "1e999", "NaN", "2026-01-01", "@p", "*", "FF", "Infinity", "\r\n"),
    *([], {}, [[]], [{}], {"": {}}, [None], {"id": 5}, ["p", "q"], [[[[[[[[]]]]]]]]),
)
_TEXTS: Final = (
    *("SELECT * FROM c", "SELECT VALUE COUNT(1) FROM c", "SELECT c.n FROM c ORDER BY c.n DESC"),
    "SELECT TOP 3 * FROM c WHERE c.pk IN ('p', 'q') OR c.n BETWEEN 1 AND 2",
    "SELECT DISTINCT c.pk, SUM(c.n) AS n FROM c JOIN t IN c.tags GROUP BY c.pk",
    "SELECT VALUE x FROM (SELECT VALUE c.n FROM c) AS x OFFSET 0 LIMIT 5",
    "SELECT VALUE DateTimeAdd('dd', c.n, c.at) FROM c WHERE c.id LIKE '%[a-z]_'",
    "SELECT VALUE POWER(c.n, c.n) % 3 / c.n || 'x' FROM c WHERE REGEXMATCH(c.id, '(a+)+$')",
    "SELECT VALUE {a: ARRAY(SELECT VALUE t FROM t IN c.tags), b: c.n ?? -c.n ? 1 : [2]} FROM c",
)
_QUERY: Final = {
    "x-ms-documentdb-isquery": "True",
    "Content-Type": "application/query+json",
    "x-ms-documentdb-query-enablecrosspartition": "True",
}
_KEY: Final = {"x-ms-documentdb-partitionkey": '["p"]'}
_BATCH: Final = _KEY | {"x-ms-cosmos-is-batch-request": "True"}
_HEADERS: Final[Mapping[str, tuple[str, ...]]] = {
    "x-ms-documentdb-partitionkey": (
        "[]",
        "[{}]",
        '["p"',
        "[1e999]",
        '[["p"]]',
        "p",
        "é",
        "[5]",
    ),
    "x-ms-documentdb-partitionkeyrangeid": ("0", "9", "", "é", "0,0", "99999999999999999999"),
    "x-ms-continuation": ("i:1", "n:2", "i:", "x", "i:99999999999999999999", "é", "i:-1"),
    "x-ms-max-item-count": ("0", "-1", "-2", "1", "x", "1e3", "999999999999999999999", ""),
    "x-ms-session-token": ("0:0#99999", "0:x#y", "é", ":::", "0:-1#5#1=2", ",,,"),
    "x-ms-start-epk": ("", "FF", "zz", "é", "0" * 200),
    "x-ms-end-epk": ("", "00", "FFF", "é"),
    "x-ms-offer-throughput": ("400", "-1", "x", "99999999999999", "401", ""),
    "x-ms-cosmos-offer-autopilot-settings": ("{}", "5", '{"maxThroughput": 1e9}', "{", "[]"),
    "x-ms-consistency-level": ("Session", "x"),
    "x-ms-documentdb-is-upsert": ("True", "x"),
    "x-ms-cosmos-is-query-plan-request": ("True",),
    "x-ms-cosmos-is-batch-request": ("True",),
    "x-ms-cosmos-batch-atomic": ("True", "x"),
    "x-ms-cosmos-intended-collection-rid": ("x", "", "é"),
    "A-IM": ("Incremental Feed", "Full-Fidelity Feed", "x", ""),
    "If-Match": ("*", "", '"0"', "é"),
    "If-None-Match": ("*", '"0"', '"99999999999999999999"', '"-1"', "x", "é", '"1:2"'),
    "If-Modified-Since": (
        "x",
        "Sat, 01 Aug 2026 10:00:00 GMT",
        "Sat, 99 Aug 99999 10:00:00 GMT",
    ),
    "Prefer": ("return=minimal", "x"),
    "Authorization": ("", "x", "type%3Dmaster", "%C3%A9", "%ff%fe"),
    "x-ms-date": ("", "x", "Sat, 01 Aug 99999 10:00:00 GMT", "é"),
    "x-ms-activity-id": ("é", "x" * 4000),
    "x-ms-cosmos-changefeed-wire-format-version": ("2021-09-15", "x"),
}


@dataclass(frozen=True, kw_only=True)
class Request:
    verb: str
    path: str
    headers: Mapping[str, str]
    body: bytes | None

    def __str__(self) -> str:
        return f"{self.verb} {self.path} {dict(self.headers)} {(self.body or b'')[:300]!r}"


def odd_request(chance: random.Random) -> Request:
    """Return the next request: up to four breaks of one that is right."""
    verb, path, headers, body = chance.choice(_right(chance))
    for _ in range(chance.randrange(4)):
        body = _broken(body, chance)
    found = Request(
        verb=verb,
        path=path,
        headers=headers,
        body=None if body is None else msgspec.json.encode(body),
    )
    for break_ in (_other_header, _other_bytes, _other_path, _other_verb):
        if chance.random() < 0.2:
            found = break_(found, chance)
    return found


def _right(chance: random.Random) -> list[tuple[str, str, Mapping[str, str], Any]]:
    """Return requests that are answered, one of each kind."""
    name = f"i{chance.randrange(9)}"
    item = {"id": name, "pk": "p", "n": 1, "ttl": 100, "at": "2020-01-01", "tags": ["a", "b"]}
    change = [
        {
            "op": chance.choice(["add", "set", "replace", "remove", "incr"]),
            "path": "/n",
            "value": 1,
        },
        {"op": "move", "from": "/at", "path": "/then"},
    ]
    operations = [
        {"operationType": kind, "id": name, "resourceBody": item, "partitionKey": '["p"]'}
        for kind in ("Create", "Upsert", "Replace", "Read", "Delete")
    ]
    patch = {"operationType": "Patch", "id": name, "ifMatch": "*", "partitionKey": '["p"]'}
    operations.append(patch | {"resourceBody": {"operations": change}})
    made = {
        "id": f"c{chance.randrange(3)}",
        "partitionKey": {"paths": ["/pk"], "kind": "Hash", "version": 2},
        "indexingPolicy": {"includedPaths": [{"path": "/*"}], "excludedPaths": []},
        "uniqueKeyPolicy": {"uniqueKeys": [{"paths": ["/email"]}]},
        "defaultTtl": -1,
        "changeFeedPolicy": {"retentionDuration": 10},
        "conflictResolutionPolicy": {"mode": "LastWriterWins"},
    }
    query = {"query": chance.choice(_TEXTS), "parameters": [{"name": "@p", "value": "p"}]}
    feed = {"A-IM": "Incremental Feed", "x-ms-documentdb-partitionkeyrangeid": "0"}
    offer = {"content": {"offerThroughput": 400}, "resource": "x", "offerVersion": "V2"}
    return [
        ("POST", DOCS, _KEY, item),
        ("POST", DOCS, _KEY | {"x-ms-documentdb-is-upsert": "True"}, item),
        ("PUT", f"{DOCS}/{name}", _KEY, item),
        (
            "PATCH",
            f"{DOCS}/{name}",
            _KEY,
            {"operations": change, "condition": "FROM c WHERE c.n"},
        ),
        ("DELETE", f"{DOCS}/{name}", _KEY, None),
        ("GET", f"{DOCS}/{name}", _KEY, None),
        ("GET", DOCS, feed, None),
        ("GET", DOCS, {}, None),
        ("POST", DOCS, _QUERY, query),
        ("POST", DOCS, {"x-ms-cosmos-is-query-plan-request": "True"}, query),
        ("POST", DOCS, _BATCH | {"x-ms-cosmos-batch-atomic": "True"}, operations),
        (
            "POST",
            DOCS,
            {
                "x-ms-cosmos-is-batch-request": "True",
                "x-ms-documentdb-partitionkeyrangeid": "0",
            },
            operations,
        ),
        ("POST", "/dbs/d/colls/c/operations/partitionkeydelete", _KEY, None),
        ("POST", "/dbs/d/colls", {"x-ms-offer-throughput": "400"}, made),
        ("PUT", f"/dbs/d/colls/{made['id']}", {}, made),
        ("GET", f"/dbs/d/colls/{made['id']}", {}, None),
        ("DELETE", f"/dbs/d/colls/{made['id']}", {}, None),
        ("POST", "/dbs", {}, {"id": f"e{chance.randrange(3)}"}),
        ("POST", "/dbs", _QUERY, query),
        ("POST", "/dbs/d/colls", _QUERY, query),
        ("DELETE", f"/dbs/e{chance.randrange(3)}", {}, None),
        ("GET", "/dbs/d/colls/c/pkranges", {}, None),
        ("POST", "/offers", _QUERY, query),
        ("PUT", "/offers/x", {}, offer),
        ("GET", "/", {}, None),
    ]


def _broken(value: Any, chance: random.Random) -> Any:
    """Put something odd in the place of a part of a value."""
    if not value or chance.random() < 0.3:
        return chance.choice(_ODD)
    if isinstance(value, dict):
        return _broken_object(value, chance)
    if isinstance(value, list):
        at = chance.randrange(len(value))
        return [*value[:at], _broken(value[at], chance), *value[at + 1 :]]
    if isinstance(value, str):
        at = chance.randrange(len(value))
        odd = chance.choice(
            [" ", "(", ")", "'", ",", "{", "[", ".", "@", "9", "é", "-", "NOT "]
        )
        return value[:at] + odd + value[at + chance.randrange(2) :]
    return chance.choice(_ODD)


def _broken_object(value: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    name, kind = chance.choice(list(value)), chance.random()
    if kind < 0.1:
        return {k: v for k, v in value.items() if k != name}
    if kind < 0.2:
        return value | {chance.choice(["_ts", "_rid", "_lsn", "x", ""]): value[name]}
    return value | {name: _broken(value[name], chance)}


def _other_header(found: Request, chance: random.Random) -> Request:
    name = chance.choice(list(_HEADERS))
    return replace(found, headers={**found.headers, name: chance.choice(_HEADERS[name])})


def _other_bytes(found: Request, chance: random.Random) -> Request:
    body = found.body or b""
    at = chance.randrange(len(body) + 1)
    odd = (b"\xff", b"\x00", b"\xed\xa0\x80", b"[" * 9000, b"{" * 3, b"\\u12", b"9" * 5000)
    return replace(found, body=body[:at] + chance.choice(odd) + body[at + 1 :])


def _other_path(found: Request, chance: random.Random) -> Request:
    at = chance.randrange(len(found.path) + 1)
    odd = ("%ff", "%00", "%2F", "/", "//", "é", "x", "%", "..", "?a=b", " ")
    return replace(found, path=found.path[:at] + chance.choice(odd) + found.path[at:])


def _other_verb(found: Request, chance: random.Random) -> Request:
    verb = chance.choice(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "ODD"])
    return replace(found, verb=verb)

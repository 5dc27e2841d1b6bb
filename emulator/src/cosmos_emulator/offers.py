"""Throughput: what was provisioned for a container or a database, as offers hold it.

It decides how many ranges a container has, and is not enforced: ``/_emulator/throttle`` does
that. As in an account, a new container has one for each 6,000 RU/s, rounded, so that there is
room to grow, and one that is given more later has at least one for each 10,000.
"""

import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from cosmos_emulator.errors import CosmosError, bad_request
from cosmos_emulator.json_values import JsonObject
from cosmos_emulator.store import Row, Store

_RU_OF_A_NEW_RANGE: Final = 6_000
_RU_OF_A_RANGE: Final = 10_000  # what one physical partition of Cosmos DB can do
_MAX_THROUGHPUT: Final = 10_000_000
_MIN_MANUAL, _STEP_OF_MANUAL = 400, 100
_MIN_AUTOSCALE, _STEP_OF_AUTOSCALE = 1_000, 1_000
_MOST_GROWTH: Final = 100
_COLUMNS: Final = (
    "SELECT rid, owner, link, throughput, autoscale, growth, ts, etag FROM offers "
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """RU/s; the highest, if they scale by themselves. ``growth`` is kept and has no effect."""

    units: int = _MIN_MANUAL
    autoscale: bool = False
    growth: int | None = None  # percent, by which the highest grows in an account

    @property
    def ranges(self) -> int:
        """Return how many a new container has: a half is rounded up."""
        return max(1, (self.units + _RU_OF_A_NEW_RANGE // 2) // _RU_OF_A_NEW_RANGE)

    @property
    def least_ranges(self) -> int:
        """Return how many can do so much."""
        return math.ceil(self.units / _RU_OF_A_RANGE)

    @property
    def least(self) -> int:
        return _MIN_AUTOSCALE if self.autoscale else _MIN_MANUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The throughput of a resource. ``owner`` is its resource id, ``link`` its path by ids."""

    rid: str
    owner: str
    link: str
    throughput: Throughput
    ts: int
    etag: str

    def resource(self) -> JsonObject:
        units, scales = self.throughput.units, self.throughput.autoscale
        content: JsonObject = {
            "offerThroughput": units // 10 if scales else units,  # what it scales down to
            "offerIsRUPerMinuteThroughputEnabled": False,
            "offerMinimumThroughputParameters": {"maxThroughputEverProvisioned": units},
        }
        if scales:
            settings: JsonObject = {"maxThroughput": units}
            if self.throughput.growth is not None:
                policy = {"incrementPercent": self.throughput.growth}
                settings["autoUpgradePolicy"] = {"throughputPolicy": policy}
            content["offerAutopilotSettings"] = settings
        return {
            "resource": self.link,
            "offerType": "Invalid",
            "offerVersion": "V2",
            "offerResourceId": self.owner,
            "content": content,
            "id": self.rid,
            "_rid": self.rid,
            "_self": f"offers/{self.rid}/",
            "_etag": self.etag,
            "_ts": self.ts,
        }

    def headers(self) -> dict[str, str]:
        return {
            "x-ms-cosmos-min-throughput": str(self.throughput.least),
            "x-ms-offer-replace-pending": "false",
        }


class Offers:
    """Every offer, by its own id and by that of its owner."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock

    def create(self, owner: str, link: str, throughput: Throughput, etag: str) -> None:
        self._store.run(
            "INSERT INTO offers (rid, owner, link, throughput, autoscale, growth, ts, etag) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                secrets.token_hex(4),
                owner,
                link,
                throughput.units,
                throughput.autoscale,
                throughput.growth,
                int(self._clock()),
                etag,
            ),
        )

    def all(self) -> list[Offer]:
        return [_offer(x) for x in self._store.rows(_COLUMNS + "ORDER BY rid")]

    def offer(self, rid: str) -> Offer:
        row = self._store.row(_COLUMNS + "WHERE rid = ?", (rid,))
        if row is None:
            raise CosmosError(404, f"There is no offer {rid!r}.")
        return _offer(row)

    def of(self, owner: str) -> Offer | None:
        row = self._store.row(_COLUMNS + "WHERE owner = ?", (owner,))
        return None if row is None else _offer(row)

    def replace(self, old: Offer, throughput: Throughput, etag: str) -> Offer:
        self._store.run(
            "UPDATE offers SET throughput = ?, autoscale = ?, growth = ?, ts = ?, etag = ? "
            "WHERE rid = ?",
            (
                throughput.units,
                throughput.autoscale,
                throughput.growth,
                int(self._clock()),
                etag,
                old.rid,
            ),
        )
        return self.offer(old.rid)


def throughput_in_headers(headers: Mapping[str, str]) -> Throughput | None:
    """Return what the creation of a resource asks for, if anything."""
    manual = headers.get("x-ms-offer-throughput")
    scaled = headers.get("x-ms-cosmos-offer-autopilot-settings")
    if manual is not None and scaled is not None:
        raise bad_request("Give a resource a manual throughput or autoscale, not both.")
    if manual is not None:
        return checked_throughput(int(manual[:9]) if manual.isdecimal() else manual)
    if scaled is None:
        return None
    try:
        return _autoscaled(msgspec.json.decode(scaled, type=dict[str, Any]))
    except msgspec.DecodeError:
        raise bad_request(
            f'Autoscale is asked for by {{"maxThroughput": 4000}}, not by {scaled!r}.'
        ) from None


def throughput_in_offer(
    body: JsonObject, before: Throughput, headers: Mapping[str, str]
) -> Throughput:
    """Return what the replacement of an offer asks for; kinds change by header only."""
    if _is_true(headers, "x-ms-cosmos-migrate-offer-to-autopilot"):
        thousands = math.ceil(before.units / _STEP_OF_AUTOSCALE)
        return Throughput(units=thousands * _STEP_OF_AUTOSCALE, autoscale=True)
    if _is_true(headers, "x-ms-cosmos-migrate-offer-to-manual-throughput"):
        return Throughput(units=before.units)
    content = body.get("content")
    if not isinstance(content, dict):
        raise bad_request('An offer has a content: {"offerThroughput": 400}.')
    settings = content.get("offerAutopilotSettings")
    if isinstance(settings, dict) != before.autoscale:
        raise bad_request(
            "An offer changes between manual throughput and autoscale only by a request to "
            "migrate it (x-ms-cosmos-migrate-offer-to-autopilot)."
        )
    if isinstance(settings, dict):
        return _autoscaled(settings)
    return checked_throughput(content.get("offerThroughput"))


def _autoscaled(settings: JsonObject) -> Throughput:
    found = checked_throughput(settings.get("maxThroughput"), autoscale=True)
    policy = settings.get("autoUpgradePolicy")
    if policy is None:
        return found
    try:
        growth = policy["throughputPolicy"]["incrementPercent"]
    except (KeyError, TypeError):
        growth = None
    if type(growth) is not int or not 0 <= growth <= _MOST_GROWTH:
        wanted = '{"throughputPolicy": {"incrementPercent": 10}}'
        raise bad_request(
            f"autoUpgradePolicy is {wanted}, from 0 to {_MOST_GROWTH}, not {policy!r}."
        )
    return replace(found, growth=growth)


def checked_throughput(units: Any, *, autoscale: bool = False) -> Throughput:
    """Return so many RU/s; 400 for what no account would give."""
    least, step = (
        (_MIN_AUTOSCALE, _STEP_OF_AUTOSCALE) if autoscale else (_MIN_MANUAL, _STEP_OF_MANUAL)
    )
    whole = isinstance(units, int) and not isinstance(units, bool)
    if not whole or not least <= units <= _MAX_THROUGHPUT or units % step:
        raise bad_request(
            f"Throughput is a number of RU/s from {least} to {_MAX_THROUGHPUT:,} in steps of "
            f"{step}{' (autoscale)' if autoscale else ''}, not {units!r}."
        )
    return Throughput(units=units, autoscale=autoscale)


def _is_true(headers: Mapping[str, str], name: str) -> bool:
    return headers.get(name, "").lower() == "true"


def _offer(row: Row) -> Offer:
    rid, owner, link, units, autoscale, growth, ts, etag = row
    return Offer(
        rid=rid,
        owner=owner,
        link=link,
        throughput=Throughput(units=units, autoscale=bool(autoscale), growth=growth),
        ts=ts,
        etag=etag,
    )

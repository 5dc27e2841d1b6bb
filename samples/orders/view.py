"""The observer: it keeps, for each customer, what he has ordered and what it comes to.

The view is another container, with one item for each customer. An order's change carries
the whole order, so the view of a customer is his item with this order in it: to handle a
change again gives the same item. Nothing is added up that could be added twice.

All orders of a customer have his key, so they lie in one range and come in order. One
batch reads and writes the item of each customer in it once. A host that has lost its
lease could still be writing an old item; it would be refused, because the item has
another etag by then, and the batch is handled again by whoever has the lease.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from azure.core import MatchConditions
from azure.cosmos.aio import ContainerProxy  # noqa: TC002 - beside its kin
from azure.cosmos.exceptions import CosmosResourceNotFoundError

from changefeed import Change, CloseReason, Context

from .places import opened

Customer = dict[str, Any]


class CustomerView:
    """Keeps the view at ``view``, an address like ``cosmos://HOST/DATABASE/CONTAINER``."""

    def __init__(self, view: str) -> None:
        self._address = view
        self._opened = AsyncExitStack()
        self._view: ContainerProxy | None = None

    async def open(self, context: Context) -> None:
        del context
        self._view = await self._opened.enter_async_context(opened(self._address, "/id"))

    async def process(self, context: Context, changes: Sequence[Change]) -> None:
        del context
        by_customer: defaultdict[str, list[Change]] = defaultdict(list)
        for change in changes:
            by_customer[change.key].append(change)
        for customer, theirs in by_customer.items():
            await self._update(customer, theirs)

    async def close(self, context: Context, reason: CloseReason) -> None:
        del context, reason
        await self._opened.aclose()

    async def _update(self, customer: str, changes: Iterable[Change]) -> None:
        assert self._view is not None, "open comes first"
        try:
            found: Customer = dict(await self._view.read_item(customer, customer))
        except CosmosResourceNotFoundError:
            await self._view.create_item(with_orders({"id": customer}, changes))
        else:
            await self._view.replace_item(
                customer,
                with_orders(found, changes),
                etag=found["_etag"],
                match_condition=MatchConditions.IfNotModified,
            )


def with_orders(customer: Mapping[str, Any], changes: Iterable[Change]) -> Customer:
    """Return a customer's item with some of his orders in it as they are now."""
    orders: dict[str, Any] = dict(customer.get("orders", {}))
    for change in changes:
        order = change.value()
        orders[change.id] = {"cents": order["cents"], "status": order["status"]}
    total = sum(x["cents"] for x in orders.values())
    waiting = sum(1 for x in orders.values() if x["status"] != "shipped")
    return {**customer, "orders": orders, "total_cents": total, "waiting": waiting}

"""A program as users write them, for type checkers: they know what is in its changes.

It is not run. mypy checks it with the tree, and over a wheel, as pyright does.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import msgspec
from azure.cosmos.aio import ContainerProxy
from fastapi import FastAPI
from pydantic import BaseModel

from changefeed import (
    Change,
    ChangeFeedProcessor,
    Context,
    Host,
    ProcessorGroup,
    Settings,
    asgi_endpoints,
    observer,
    open_host,
)
from changefeed.transactional.postgres import in_postgres
from changefeed.transactional.sqlite import in_sqlite


class Struct(msgspec.Struct):
    cents: int


class Model(BaseModel):
    cents: int


@dataclass
class Record:
    cents: int


class Dict(TypedDict):
    cents: int


async def on_changes(changes: Sequence[Change[Struct]]) -> None:
    for change in changes:
        assert_type(change.value(), Struct)


@observer("models")
class OfModels:
    async def process(self, context: Context, changes: Sequence[Change[Model]]) -> None:
        for change in changes:
            assert_type(change.value().cents, int)
            context.acknowledge(change)


def of_records(_: Context, changes: Sequence[Change[Record | None]]) -> None:
    for change in changes:
        assert_type(change.value(), Record | None)


async def of_anything(changes: Sequence[Change]) -> None:
    for change in changes:
        assert_type(change.value(), Any)


@in_sqlite("orders.db", name="orders")
def in_a_file(_: sqlite3.Connection, changes: Sequence[Change[Dict]]) -> None:
    for change in changes:
        assert_type(change.value()["cents"], int)


@in_postgres("postgresql://here/orders", name="orders")
async def in_a_server(_: Any, changes: Sequence[Change[Struct]]) -> None:
    for change in changes:
        assert_type(change.value(), Struct)


async def main(orders: ContainerProxy, leases: ContainerProxy) -> FastAPI:
    first = ChangeFeedProcessor(orders, leases, on_changes, processor_name="first")
    second = ChangeFeedProcessor(orders, leases, OfModels, processor_name="second")
    async with ProcessorGroup(first, second) as group:
        assert_type(group, ProcessorGroup)
        asgi_endpoints(first.host)
    async with open_host(Settings(), in_a_file) as host:
        assert_type(host, Host)
        await host.run()
    return FastAPI(lifespan=group.lifespan)

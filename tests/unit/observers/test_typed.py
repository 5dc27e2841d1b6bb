"""Observers that are annotated with the type of their changes."""

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict, assert_type

import msgspec
import pytest
from pydantic import BaseModel, field_validator

from changefeed.feeds.feed import Change, Operation
from changefeed.observers.observer import Context
from changefeed.runtime.errors import UserError
from changefeed.testing.observers import deliver
from tests.support import make

SEEN: list[Any] = []


class Struct(msgspec.Struct):
    cents: int


@dataclass
class Record:
    cents: int


class Dict(TypedDict):
    cents: int


class Model(BaseModel):
    cents: int


async def of_struct(changes: Sequence[Change[Struct]]) -> None:
    for change in changes:
        assert_type(change.value(), Struct)
        SEEN.append(change.value())


def of_record(_context: Context, changes: list[Change[Record]]) -> None:
    SEEN.extend(x.value() for x in changes)


async def of_dict(changes: "Sequence[Change[Dict]]") -> None:
    SEEN.extend(x.value() for x in changes)


class OfModel:
    async def process(self, _context: Context, changes: Sequence[Change[Model]]) -> None:
        for change in changes:
            assert_type(change.value().cents, int)
            SEEN.append(change.value())


async def of_any(changes: Sequence[Change]) -> None:
    for change in changes:
        assert_type(change.value(), Any)
        SEEN.append(change.value())


async def of_struct_or_none(changes: Sequence[Change[Struct | None]]) -> None:
    SEEN.extend(x.value() for x in changes)


async def of_models_or_none(changes: Sequence[Change[list[Model] | None]]) -> None:
    SEEN.extend(x.value() for x in changes)


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    SEEN.clear()


def cents(sequence: int, body: bytes, **more: Any) -> Change:
    return make.change(sequence, key=f"k{sequence}", body=body, **more)


@pytest.mark.parametrize(
    ("observer", "made"),
    [
        (of_struct, Struct(5)),
        (of_record, Record(5)),
        (of_dict, {"cents": 5}),
        (OfModel, Model(cents=5)),
        (functools.partial(of_record), Record(5)),
        (of_any, {"cents": 5, "more": 1}),
    ],
)
async def test_a_value_is_of_the_type_that_the_observer_says(
    observer: Callable[..., Any], made: object
) -> None:
    delivered = await deliver(observer, [cents(1, b'{"cents": 5, "more": 1}')])
    assert delivered.failure is None
    assert [made] == SEEN


async def test_a_change_keeps_all_else_and_is_parsed_once() -> None:
    async def process(context: Context, changes: Sequence[Change[Struct]]) -> None:
        (change,) = changes
        assert change.value() is change.value()
        assert (change.sequence, change.key, change.body, change.previous) == (
            7,
            "k7",
            b'{"cents": 5}',
            b'{"cents": 4}',
        )
        context.acknowledge(change)

    given = cents(7, b'{"cents": 5}', previous=b'{"cents": 4}')
    delivered = await deliver(process, [given], manual=True)
    assert (delivered.failure, delivered.done_up_to) == (None, 7)


@pytest.mark.parametrize("observer", [of_struct, of_record, of_dict, OfModel])
async def test_a_change_that_does_not_fit_fails_and_tells_where_but_not_what_was_there(
    observer: Callable[..., Any],
) -> None:
    delivered = await deliver(
        observer, [cents(1, b'{"cents": 5}'), cents(2, b'{"cents": "hidden"}')]
    )
    said = str(delivered.failure)
    assert [x for x in ("cents", "sequence 2", "'id-2'") if x not in said] == []
    assert "hidden" not in said
    assert SEEN == []  # the batch is taken apart before the observer sees any of it


async def test_a_delete_without_an_image_is_none_where_that_is_allowed() -> None:
    delete = cents(1, b"", operation=Operation.DELETE)
    for observer in (of_struct_or_none, of_models_or_none, of_any):
        assert (await deliver(observer, [delete])).failure is None
    assert SEEN == [None, None, None]
    assert "delete" in str((await deliver(of_struct, [delete])).failure)


async def test_a_plain_observer_has_its_changes_decoded_in_its_thread() -> None:
    class Where(BaseModel):
        cents: int

        @field_validator("cents")
        @classmethod
        def note(cls, cents: int) -> int:
            SEEN.append(threading.get_ident())
            return cents

    def plain(changes: list[Change[Where]]) -> None:
        SEEN.extend(threading.get_ident() for _ in changes)

    async def of_the_loop(changes: list[Change[Where]]) -> None:
        SEEN.extend(threading.get_ident() for _ in changes)

    await deliver(plain, [cents(1, b'{"cents": 5}')])
    await deliver(of_the_loop, [cents(1, b'{"cents": 5}')])
    here = threading.get_ident()
    assert SEEN[0] == SEEN[1] != here
    assert SEEN[2:] == [here, here]


async def test_a_container_of_models_is_validated_by_pydantic() -> None:
    await deliver(of_models_or_none, [cents(1, b'[{"cents": "5"}]')])
    assert [[Model(cents=5)]] == SEEN


async def test_a_type_that_cannot_be_found_or_made_is_refused() -> None:
    async def of_unknown(changes: "Sequence[Change[Nowhere]]") -> None: ...  # type: ignore[name-defined] # noqa: F821
    async def of_two_structs(changes: Sequence[Change[Struct | Tagged]]) -> None: ...

    async def of_model_or_handle(changes: Sequence[Change[Model | Handle]]) -> None: ...
    async def of_unfinished(changes: Sequence[Change[Unfinished]]) -> None: ...
    async def of_half_a_struct(changes: Sequence[Change[HalfAStruct]]) -> None: ...

    with pytest.raises(UserError, match="Nowhere"):
        await deliver(of_unknown, [cents(1, b"{}")])
    with pytest.raises(UserError, match="Struct"):
        await deliver(of_two_structs, [cents(1, b"{}")])
    with pytest.raises(UserError, match="Handle"):
        await deliver(of_model_or_handle, [cents(1, b"{}")])
    with pytest.raises(UserError, match="Nowhere"):
        await deliver(of_unfinished, [cents(1, b"{}")])
    with pytest.raises(UserError, match="Nowhere"):
        await deliver(of_half_a_struct, [cents(1, b"{}")])


class Handle: ...


class Unfinished(BaseModel):
    cents: "Nowhere"  # type: ignore[name-defined] # noqa: F821


class HalfAStruct(msgspec.Struct):
    cents: "Nowhere"  # type: ignore[name-defined] # noqa: F821


class Tagged(msgspec.Struct):
    cents: int

"""What a user may say to the format ``changefeed_items``, as Spark options."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from changefeed.feeds.addresses import FEEDS
from changefeed.feeds.cosmos.address import CosmosAccess
from changefeed.pipeline.items.columns import BODY, DEFAULT, RESCUED, ItemColumns, names_in
from changefeed.pipeline.items.columns import of_format as columns_of_format
from changefeed.pipeline.source.options import (
    CREDENTIALS,
    SHARES,
    address_of,
    credentials_of,
    pushes_filters,
    require_known,
)
from changefeed.runtime.errors import UserError

NAME: Final = "changefeed_items"
_KNOWN: Final = (
    "feed",
    "query",
    "partitionKey",
    "itemIds",
    "columns",
    "pushFilters",
    *SHARES,
    *CREDENTIALS,
)
_BACKEND: Final = "cosmos"


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemId:
    """An id, and the levels of its partition key where they are not said once for all."""

    id: str
    key: tuple[Any, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemOptions:
    """``feed`` is the address of a container. ``query`` is asked in the place of one for the
    fields of columns. ``key`` is a partition key, as changes have it. ``ids`` are the only
    items to read. ``columns`` are those of the format. ``cosmos`` opens the account; without
    it, the environment of each process says what does.
    """

    feed: str
    query: str | None = None
    key: str | None = None
    ids: tuple[ItemId, ...] | None = None
    columns: tuple[str, ...] | None = None
    push_filters: bool = False
    cosmos: CosmosAccess | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> "ItemOptions":
        """Read options. Raise ``UserError`` for a wrong one or one there is not."""
        options = {name.lower(): value for name, value in given.items()}
        require_known(options, _KNOWN, example="cosmos://HOST/DATABASE/CONTAINER")
        backend, where = FEEDS.find(options["feed"])
        if backend.name != _BACKEND:
            raise UserError(
                f"{NAME} asks Cosmos DB, and {where.scheme!r} keeps changes, which no query "
                f"finds: read them with the format changefeed, and keep their latest state in "
                f"the table 'latest' of a pipeline"
            )
        made = cls(
            feed=address_of(options),
            query=options.get("query") or None,
            key=options.get("partitionkey"),
            ids=None if "itemids" not in options else _ids(options["itemids"]),
            columns=None if "columns" not in options else names_in(options["columns"]),
            push_filters=pushes_filters(options),
            cosmos=credentials_of(options),
        )
        made._check()
        return made

    @property
    def default(self) -> tuple[str, ...]:
        """The columns where no schema is given."""
        return self.columns or (DEFAULT if self.query is None else (BODY,))

    def columns_of(self, schema: Any) -> ItemColumns:
        """Return what the columns of a schema are. Raise ``UserError`` as they do."""
        is_default = schema.json() == columns_of_format(self.default).json()
        return ItemColumns.of(schema, self.default if is_default else self.columns or ())

    def _check(self) -> None:
        if self.query is None:
            return
        if self.ids is not None:
            raise UserError("set query or itemIds, not both: each names the items to read")
        if self.push_filters:
            raise UserError(
                "pushFilters=true: a query of your own is asked as it is. Write the condition "
                "into it, or leave query out"
            )
        for name in self.columns or ():
            if name not in (BODY, RESCUED):
                raise UserError(
                    f"columns names {name!r}, which the results of a query need not have: "
                    f"select what it is made of, and name that in .schema(...)"
                )


def _ids(text: str) -> tuple[ItemId, ...]:
    """Read a JSON array of ids, or of arrays: an id, and the levels of its partition key."""
    try:
        found = msgspec.json.decode(text, type=list[str | list[Any]])
        return tuple(map(_id, found))
    except (msgspec.DecodeError, TypeError, ValueError) as error:
        raise UserError(
            f'itemIds={text[:100]!r}: write a JSON array, as ["i1", "i2"] with partitionKey, '
            f'or [["i1", "key of i1"], ["i2", "key of i2"]] ({error})'
        ) from error


def _id(given: str | list[Any]) -> ItemId:
    name, *key = [given] if isinstance(given, str) else given
    if not isinstance(name, str) or not name:
        raise ValueError(f"{name!r} is no id")
    return ItemId(id=name, key=tuple(key) or None)

"""What a batch asks a container, and of which ranges.

Items by their ids are asked for in queries, ``c.id IN (…)``, each for up to 200 ids of one
range; what has such an id under another key is left out. An account charges about 2.3 request
units for a query and 0.2 for each small item that it finds by its id, and a whole one for a
point read: from three or four ids in a range on a query costs less, and it is one request
for all of them. So there are no point reads.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import msgspec

from changefeed.feeds.cosmos.items import Query
from changefeed.feeds.cosmos.keys import checked_key, key_text, key_values
from changefeed.feeds.feed import FeedRange
from changefeed.pipeline.items.columns import ID, ItemColumns, KeyPaths, key_of
from changefeed.pipeline.items.item_reader import ItemAccess, Question
from changefeed.pipeline.items.json_values import fields_of, text_of
from changefeed.pipeline.items.options import ItemId, ItemOptions
from changefeed.runtime.errors import UserError

_IDS_OF_A_QUERY: Final = 200
_QUERIES_OF_A_TASK: Final = 10
_OF_ID: Final = ("id",)

Key: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuestion:
    """A question, and of which items: the id and the partition key of each, as text."""

    question: Question
    items: frozenset[tuple[str, str]] | None = None


def planned(
    access: ItemAccess, options: ItemOptions, columns: ItemColumns, where: Query
) -> list[tuple[ItemQuestion, ...]]:
    """Return what each task asks. Raise ``UserError`` for a key that no item has."""
    key = None if options.key is None else _key(options.key, len(access.paths))
    if options.query is not None:
        query = Query(text=options.query)
        if key is None:
            access.check(options.query)
    else:
        by_id = options.ids is not None
        query = selected(columns, access.paths, where, with_identity=by_id)
    if options.ids is not None:
        asked = list(_by_ids(access, query, where, options.ids, key))
        return [tuple(x) for x in _chunks(asked, _QUERIES_OF_A_TASK)]
    places: Sequence[FeedRange | Key] = access.ranges() if key is None else [key]
    return [(ItemQuestion(question=_question(access, query, x)),) for x in places]


def results(access: ItemAccess, asked: ItemQuestion) -> Iterator[Sequence[msgspec.Raw]]:
    """Yield what is found, each as its JSON, some at a time."""
    for page in access.results(asked.question):
        if asked.items is None:
            yield page
        elif kept := [x for x in page if _is_of(x, asked.items, access)]:
            yield kept


def _is_of(item: msgspec.Raw, items: frozenset[tuple[str, str]], access: ItemAccess) -> bool:
    fields = fields_of(bytes(item)) or {}
    return (text_of(bytes(fields[ID])), key_of(fields, access.paths)) in items


def selected(
    columns: ItemColumns,
    paths: KeyPaths,
    where: Query,
    *,
    with_identity: bool = False,
) -> Query:
    """Return the query for what columns need of the items that meet some conditions."""
    names = columns.needed(paths, with_identity=with_identity)
    fields = "*"
    if names is not None:
        texts = [msgspec.json.encode(x).decode() for x in names]
        fields = f"VALUE {{{', '.join(f'{x}: c[{x}]' for x in texts)}}}"
    condition = f" WHERE {where.text}" if where.text else ""
    text = f"SELECT {fields} FROM c{condition}"  # noqa: S608 - names are quoted
    return Query(text=text, parameters=where.parameters)


def _by_ids(
    access: ItemAccess,
    query: Query,
    where: Query,
    ids: Sequence[ItemId],
    key: Key | None,
) -> Iterator[ItemQuestion]:
    keys = [_key_of(x, key, access) for x in ids]
    texts = [*map(key_text, keys)]
    places: Mapping[str, FeedRange | Key]
    if key is not None:
        places = dict.fromkeys(texts, key)
    else:
        access.ranges()
        by_text = dict(zip(texts, keys, strict=True))
        places = dict(zip(by_text, access.holders([*by_text.values()]), strict=True))
    groups: dict[str, list[tuple[str, str]]] = {}
    for name, text in dict.fromkeys(zip((x.id for x in ids), texts, strict=True)):
        groups.setdefault(repr(places[text]), []).append((name, text))
    for members in groups.values():
        for some in _chunks(members, _IDS_OF_A_QUERY):
            asked = _with_ids(query, where, [x for x, _ in some])
            yield ItemQuestion(
                question=_question(access, asked, places[some[0][1]]),
                items=frozenset(some),
            )


def _with_ids(query: Query, where: Query, ids: Sequence[str]) -> Query:
    names = {f"@i{n}": x for n, x in enumerate(dict.fromkeys(ids))}
    word = "AND" if where.text else "WHERE"
    return replace(
        query,
        text=f"{query.text} {word} c.id IN ({', '.join(names)})",
        parameters={**query.parameters, **names},
    )


def _key_of(item: ItemId, key: Key | None, access: ItemAccess) -> Key:
    if key is not None:
        if item.key is not None:
            raise UserError(
                f"itemIds names a partition key of {item.id!r}, and partitionKey another: say "
                f"it once"
            )
        return key
    if item.key is None and tuple(access.paths) == (_OF_ID,):
        return (item.id,)
    try:
        return tuple(checked_key(item.key or (), len(access.paths)))
    except ValueError as error:
        raise UserError(
            f"itemIds: {item.id!r} has no partition key "
            f"({', '.join('/' + '/'.join(x) for x in access.paths)}): {error}. Write it behind "
            f"the id, as [[{msgspec.json.encode(item.id).decode()}, …]], or say partitionKey "
            f"for all"
        ) from error


def _key(text: str, levels: int) -> Key:
    try:
        return tuple(key_values(text, levels))
    except ValueError as error:
        raise UserError(
            f"partitionKey={text!r}: write it as the column key has it: text as it is, other "
            f"values as JSON behind =, several levels as a JSON array ({error})"
        ) from error


def _question(access: ItemAccess, query: Query, of: FeedRange | Key) -> Question:
    return Question(query=query, identity=access.identity(), of=of)


def _chunks(found: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    for at in range(0, len(found), most):
        yield found[at : at + most]

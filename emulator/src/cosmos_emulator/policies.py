"""What a container says of vectors, texts and computed properties, checked as an account does.

The words of a refusal are those that the vendor's own tests expect, where they expect any.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from cosmos_emulator.errors import CosmosError, bad_request
from cosmos_emulator.json_values import JsonObject
from cosmos_emulator.partition_keys import steps_of
from cosmos_emulator.query.budget import Budget
from cosmos_emulator.query.fulltext import LANGUAGES
from cosmos_emulator.query.given import DEFAULT_DISTANCE, DEFAULT_LANGUAGE, ContainerPolicies
from cosmos_emulator.query.parser import parse
from cosmos_emulator.query.syntax import Select
from cosmos_emulator.query.vectors import DISTANCES, MAX_DIMENSIONS

_DATA_TYPES: Final = frozenset({"float32", "float16", "int8", "uint8"})
_INDEX_TYPES: Final = frozenset({"flat", "quantizedFlat", "diskANN"})
_QUANTIZERS: Final = frozenset({"product", "spherical"})
_MAX_QUANTIZED: Final = 512  # bytes
_SEARCH_LIST: Final = range(25, 501)
_MAX_SHARD_PATHS: Final = 1
_WILDCARDS: Final = frozenset({"[]", "*", "?"})
_MAX_COMPUTED: Final = 20
_SYSTEM: Final = frozenset({"id", "_rid", "_ts", "_self", "_etag", "_attachments", "ttl"})
_SECONDS_OF_COMPUTED: Final = 0.2  # to read the query of one


class _Embedding(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    dimensions: int
    data_type: str = "float32"
    distance_function: str = DEFAULT_DISTANCE


class _Embeddings(msgspec.Struct, frozen=True, rename="camel"):
    vector_embeddings: list[_Embedding] = []


class _VectorIndex(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    type: str
    quantizer_type: str | None = None
    quantization_byte_size: int | None = None
    indexing_search_list_size: int | None = None
    vector_index_shard_key: list[str] | None = None


class _TextPath(msgspec.Struct, frozen=True):
    path: str
    language: str | None = None


class _Texts(msgspec.Struct, frozen=True, rename="camel"):
    default_language: str = DEFAULT_LANGUAGE
    full_text_paths: list[_TextPath] | None = None


class _SearchIndexes(msgspec.Struct, frozen=True, rename="camel"):
    vector_indexes: list[_VectorIndex] | None = None
    full_text_indexes: list[_TextPath] | None = None


class _Computed(msgspec.Struct, frozen=True):
    name: str
    query: str


def check_policies(body: JsonObject) -> None:
    """Raise 400 if one of the policies of a container is wrong."""
    indexes = _indexes(body)
    embeddings = _embeddings(body)
    for embedding in embeddings:
        _check_embedding(embedding)
    _check_different("vector embedding policy", [x.path for x in embeddings])
    for index in indexes.vector_indexes or ():
        _check_vector_index(index, {x.path: x for x in embeddings})
    texts = _texts(body)
    _check_texts(texts)
    for text in indexes.full_text_indexes or ():
        if text.path not in {x.path for x in texts.full_text_paths or ()}:
            raise bad_request(
                f"The Full Text Indexing Policy's path::{text.path} is not a path of the "
                f"fullTextPolicy: add it there."
            )
    _check_computed(_computed(body))


def check_replaced(old: JsonObject, new: JsonObject) -> None:
    """Raise 400 if a container says something else than before of a vector it has."""
    before, after = _by_path(_embeddings(old)), _by_path(_embeddings(new))
    if any(after.get(x) != y for x, y in before.items()):
        raise bad_request(
            "Paths in existing embedding policy cannot be modified in Collection Replace."
        )
    before, after = (_by_path(_indexes(x).vector_indexes or ()) for x in (old, new))
    if any(after.get(x) != y for x, y in before.items()):
        raise bad_request(
            "Paths in existing vector indexing policy cannot be modified in Collection Replace."
        )


def policies_of(properties: JsonObject) -> ContainerPolicies:
    """Return what the queries of a container go by."""
    texts = _texts(properties)
    return ContainerPolicies(
        distances={
            steps_of(x.path): x.distance_function.lower() for x in _embeddings(properties)
        },
        languages={
            steps_of(x.path): x.language for x in texts.full_text_paths or () if x.language
        },
        language=texts.default_language,
        computed={x.name: _query_of(x) for x in _computed(properties)},
    )


def _indexes(body: JsonObject) -> _SearchIndexes:
    return _shaped("indexingPolicy", body, _SearchIndexes, {})  # type: ignore[no-any-return]


def _computed(body: JsonObject) -> list[_Computed]:
    return _shaped("computedProperties", body, list[_Computed], [])  # type: ignore[no-any-return]


def _embeddings(body: JsonObject) -> list[_Embedding]:
    found: _Embeddings = _shaped("vectorEmbeddingPolicy", body, _Embeddings, {})
    return found.vector_embeddings


def _texts(body: JsonObject) -> _Texts:
    return _shaped("fullTextPolicy", body, _Texts, {})  # type: ignore[no-any-return]


def _by_path(parts: Sequence[Any]) -> dict[str, Any]:
    return {x.path: x for x in parts}


def _check_embedding(embedding: _Embedding) -> None:
    policy = "The Vector Embedding Policy has"
    _check_path("The Vector Embedding Policy", embedding.path)
    if embedding.data_type.lower() not in _DATA_TYPES:
        raise _not_one(f"{policy} an invalid DataType:{embedding.data_type}", _DATA_TYPES)
    if embedding.distance_function.lower() not in DISTANCES:
        raise _not_one(
            f"{policy} an invalid DistanceFunction:{embedding.distance_function}", DISTANCES
        )
    if embedding.dimensions < 1:
        raise bad_request(f"{policy} Dimensions:{embedding.dimensions}, which is less than 1.")
    if embedding.dimensions > MAX_DIMENSIONS:
        raise bad_request(
            f"{policy} Dimensions:{embedding.dimensions} which is more than the maximum "
            f"supported value {MAX_DIMENSIONS}."
        )


def _check_vector_index(index: _VectorIndex, embeddings: Mapping[str, _Embedding]) -> None:
    policy = "The Vector Indexing Policy"
    if index.path not in embeddings:
        raise bad_request(
            f"{policy}'s path::{index.path} not matching in Embedding's path. Name it in the "
            f"vectorEmbeddingPolicy."
        )
    if index.type not in _INDEX_TYPES:
        raise _not_one(f"{policy}'s Index Type::{index.type} is invalid", _INDEX_TYPES)
    if index.quantizer_type not in {None, *_QUANTIZERS}:
        raise _not_one(f"{policy} has no quantizerType {index.quantizer_type}", _QUANTIZERS)
    most = min(embeddings[index.path].dimensions, _MAX_QUANTIZED)
    _check_between("QuantizationByteSize", index.quantization_byte_size, range(1, most + 1))
    _check_between("IndexingSearchListSize", index.indexing_search_list_size, _SEARCH_LIST)
    shards = index.vector_index_shard_key or []
    if len(shards) > _MAX_SHARD_PATHS:
        raise bad_request(
            f"The number of shard paths defined in the Vector Indexing Policy: {len(shards)} "
            f"exceeds the maximum: {_MAX_SHARD_PATHS}."
        )
    for path in shards:
        if not steps_of(path):
            raise bad_request(f"{policy} has an invalid Shard Path: {path}.")


def _check_between(name: str, value: int | None, allowed: range) -> None:
    if value is not None and value not in allowed:
        raise bad_request(
            f"The Vector Indexing Policy parameter {name} value :: {value} is out of range. "
            f"The allowed range is between {allowed[0]} and {allowed[-1]}."
        )


def _check_texts(texts: _Texts) -> None:
    paths = texts.full_text_paths or []
    for path in paths:
        _check_path("The Full Text Policy", path.path)
    _check_different("full-text policy", [x.path for x in paths])
    for language in (texts.default_language, *(x.language for x in paths)):
        if language not in {None, *LANGUAGES}:
            raise _not_one(
                f"The Full Text Policy contains an unsupported language: {language}", LANGUAGES
            )


def _check_computed(properties: Sequence[_Computed]) -> None:
    if len(properties) > _MAX_COMPUTED:
        raise bad_request(f"A container has up to {_MAX_COMPUTED} computed properties.")
    _check_different("computed properties", [x.name for x in properties])
    for one in properties:
        if not one.name or one.name in _SYSTEM:
            raise bad_request(f"A computed property cannot be called {one.name!r}.")
        try:
            select = _query_of(one)
        except CosmosError as error:
            raise bad_request(
                f"The query of the computed property {one.name!r} is wrong: {error.message}"
            ) from error
        plain = select.is_streamed and not select.is_whole and select.where is None
        if select.value is None or not plain:
            raise bad_request(
                f"The query of the computed property {one.name!r} has to make one value of one "
                f"item, by SELECT VALUE and FROM, without another clause."
            )


def _query_of(one: _Computed) -> Select:
    return parse(one.query, Budget(_SECONDS_OF_COMPUTED))


def _check_path(policy: str, path: str) -> None:
    steps = steps_of(path)
    if not steps or _WILDCARDS & {*steps}:
        raise bad_request(f"{policy} contains an invalid Path: {path}. A path is like /a/b.")


def _check_different(where: str, names: Sequence[str]) -> None:
    twice = [a for a, b in pairwise(sorted(names)) if a == b]
    if twice:
        raise bad_request(f"{twice[0]!r} is there twice in the {where}.")


def _not_one(what: str, known: Any) -> CosmosError:
    return bad_request(f"{what}. It is one of {', '.join(sorted(known))}.")


def _shaped(name: str, body: JsonObject, kind: Any, default: Any) -> Any:
    try:
        return msgspec.convert(body.get(name) or default, kind)
    except msgspec.ValidationError as error:
        raise bad_request(
            f"One of the specified inputs is invalid: {name}: {error}."
        ) from error

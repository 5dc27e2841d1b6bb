"""What a container may say of its vectors, its texts and its computed properties."""

from collections.abc import Sequence
from typing import Any

import pytest

from cosmos_emulator.errors import CosmosError
from cosmos_emulator.policies import check_policies, check_replaced, policies_of

VECTOR = {
    "path": "/vector",
    "dataType": "float32",
    "dimensions": 256,
    "distanceFunction": "euclidean",
}


def body(
    *,
    vectors: Sequence[dict[str, Any]] = (VECTOR,),
    indexes: Sequence[dict[str, Any]] = (),
    **more: Any,
) -> dict[str, Any]:
    indexing = {"vectorIndexes": [*indexes]}
    embeddings = {"vectorEmbeddings": [*vectors]}
    return {"vectorEmbeddingPolicy": embeddings, "indexingPolicy": indexing, **more}


def index(**more: Any) -> dict[str, Any]:
    return body(indexes=[{"path": "/vector", "type": "diskANN", **more}])


def vector(**more: Any) -> dict[str, Any]:
    return body(vectors=[VECTOR | more])


def texts(language: str = "en-US", path: str = "/text", default: str = "en-US") -> Any:
    paths = [{"path": path, "language": language}]
    return {"fullTextPolicy": {"defaultLanguage": default, "fullTextPaths": paths}}


def computed(*queries: str, name: str = "lower") -> dict[str, Any]:
    return {"computedProperties": [{"name": name, "query": x} for x in queries]}


LOWER = "SELECT VALUE LOWER(c.name) FROM c"


@pytest.mark.parametrize(
    "right",
    [
        {},
        index(),
        index(quantizerType="product", quantizationByteSize=256, indexingSearchListSize=500),
        index(quantizerType="spherical", vectorIndexShardKey=["/country/city"]),
        vector(dataType="int8", distanceFunction="dotproduct", dimensions=4096),
        texts() | {"indexingPolicy": {"fullTextIndexes": [{"path": "/text"}]}},
        {"fullTextPolicy": {"defaultLanguage": "de-DE"}},
        computed(LOWER),
        computed("SELECT VALUE x.a + 1 FROM x"),
    ],
)
def test_policies_that_an_account_takes(right: dict[str, Any]) -> None:
    check_policies(right)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (
            body(vectors=(), indexes=[{"path": "/v", "type": "flat"}]),
            "/v not matching in Embedd",
        ),
        (index(type="notFlat"), "Index Type::notFlat is invalid"),
        (index(quantizationByteSize=0), "QuantizationByteSize value :: 0 is out .* 1 and 256"),
        (index(quantizationByteSize=257), "QuantizationByteSize value :: 257 is out of range"),
        (index(indexingSearchListSize=5), "ListSize value :: 5 is out .* between 25 and 500"),
        (index(quantizerType="round"), "round"),
        (index(vectorIndexShardKey=["country"]), "invalid Shard Path: country"),
        (index(vectorIndexShardKey=["/a", "/b", "/c"]), "Policy: 3 exceeds the maximum: 1"),
        (index(vectorIndexShardKey="/a"), "One of the specified inputs is invalid"),
        (vector(dataType="float33"), "Vector Embedding Policy has an invalid DataType"),
        (vector(dimensions=8000), "has Dimensions:8000 which is more than the maximum"),
        (vector(dimensions=-1), "The Vector Embedding Policy has Dimensions:-1"),
        (vector(dimensions="a"), "One of the specified inputs is invalid"),
        (vector(distanceFunction="handMeasured"), "an invalid DistanceFunction:handMeasured"),
        (vector(path="vector"), "invalid Path: vector"),
        (vector(path="/a/[]/b"), "invalid Path"),
        (body(vectors=[VECTOR, VECTOR]), "/vector"),
        (texts(path="text"), "The Full Text Policy contains an invalid Path: text"),
        (texts(language="spa-SPA"), "spa-SPA.*en-US"),
        (texts(default="spa-SPA"), "spa-SPA.*en-US"),
        (texts() | {"indexingPolicy": {"fullTextIndexes": [{"path": "/other"}]}}, "/other"),
        (texts() | {"indexingPolicy": {"fullTextIndexes": [{"p": "/a"}]}}, "specified inputs"),
        ({"computedProperties": {"name": "a", "query": LOWER}}, "One of the specified inputs"),
        (computed(LOWER, LOWER), "lower"),
        (computed(LOWER, name="id"), "id"),
        (computed("SELECT c.name FROM c"), "SELECT VALUE"),
        (computed("SELECT VALUE c.name FROM c WHERE c.a"), "SELECT VALUE"),
        (computed("SELECT VALUE COUNT(1) FROM c"), "SELECT VALUE"),
        (computed("SELECT VALUE c.name FROM c ORDER BY c.name"), "SELECT VALUE"),
        (computed("SELECT VALUE"), "lower.*Syntax error"),
    ],
)
def test_policies_that_an_account_refuses(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(CosmosError, match=words) as refused:
        check_policies(wrong)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (index(), index(type="flat"), "existing vector indexing policy cannot be modified"),
        (body(), vector(dimensions=384), "existing embedding policy cannot be modified"),
        (body(), body(vectors=()), "existing embedding policy cannot be modified"),
    ],
)
def test_what_is_said_of_a_vector_stays(
    old: dict[str, Any], new: dict[str, Any], words: str
) -> None:
    check_replaced(old, old)
    check_replaced({}, new)
    with pytest.raises(CosmosError, match=words):
        check_replaced(old, new)


def test_searches_go_by_the_policies() -> None:
    found = policies_of(vector(path='/a/"b c"') | texts("de-DE", default="fr-FR"))
    assert found.distances == {("a", "b c"): "euclidean"}
    assert found.languages == {("text",): "de-DE"}
    assert found.language == "fr-FR"

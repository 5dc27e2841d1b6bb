"""Addresses of Cosmos DB containers, and the secrets that must not be in them."""

import pytest

from changefeed.feeds.cosmos.address import (
    EMULATOR_KEY,
    SECRETS,
    AddressWrong,
    CosmosAccess,
    account_of,
    read_address,
)
from changefeed.runtime.secret import Secret

SECRET = "c2VjcmV0"
STRING = f"AccountEndpoint=https://acc.documents.azure.com:443/;AccountKey={SECRET}cw==;"


def test_an_address_names_endpoint_database_container_and_options() -> None:
    read = read_address(
        "cosmos", "//acc.example:444/shop/or%20ders?mode=all-versions", known={"mode"}
    )
    assert read.endpoint == "https://acc.example:444/"
    assert (read.database, read.container) == ("shop", "or ders")
    assert account_of(read, CosmosAccess()).host == "acc.example"
    assert read.options == {"mode": "all-versions"}
    assert str(read) == "https://acc.example:444/shop/or ders"


@pytest.mark.parametrize(
    ("place", "named"),
    [
        *((x, "Cosmos DB") for x in ("", "acc/d/c", "//acc:no/d/c")),
        *((x, "container") for x in ("//acc", "//acc/d", "//acc/d/c/e", "//acc/d/")),
        ("//acc/d/c?mod=x", "'mod'.*mode"),
    ],
)
def test_an_address_that_cannot_be_one_is_refused(place: str, named: str) -> None:
    with pytest.raises(AddressWrong, match=named):
        read_address("cosmos", place, known={"mode"})


@pytest.mark.parametrize(
    "place", [f"//user:{SECRET}@acc/d/c", f"//{SECRET}@acc/d/c", f"//acc/d/c?key={SECRET}"]
)
def test_a_key_in_an_address_is_refused_and_not_repeated(place: str) -> None:
    with pytest.raises(AddressWrong, match="CHANGEFEED_COSMOS__KEY") as refused:
        read_address("cosmos", place, known={"mode"})
    assert SECRET not in str(refused.value)


def test_a_secret_is_never_shown() -> None:
    away = read_address("cosmos", "//acc.documents.azure.com/d/c", known=())
    for access in (*(by(x, SECRET) for x in SECRETS), by("key", STRING)):
        assert SECRET not in repr(access) + repr(account_of(away, access))


def by(way: str, secret: str) -> CosmosAccess:
    """Return what opens an account in one way, with the names of a service principal."""
    return CosmosAccess.by_name(lambda x: Secret.of(secret) if x == way else None, str.upper)


def test_an_account_is_opened_in_one_way() -> None:
    away = read_address("cosmos", "//acc.documents.azure.com/d/c", known=())
    both = CosmosAccess(key=Secret.of(SECRET), token=Secret.of(SECRET))
    half = CosmosAccess(client_id="c", client_secret=Secret.of(SECRET))
    for access, named in ((both, "key and token"), (half, "tenant_id")):
        with pytest.raises(AddressWrong, match=named) as refused:
            account_of(away, access)
        assert SECRET not in str(refused.value)


def test_each_variable_says_what_opens_an_account() -> None:
    names = {f"CHANGEFEED_COSMOS__{x}": x for x in ("TENANT_ID", "CLIENT_ID")}
    for name in SECRETS:
        found = CosmosAccess.of({**names, f"CHANGEFEED_COSMOS__{name.upper()}": SECRET})
        assert found == by(name, SECRET)


def test_a_connection_string_may_say_where_the_account_is() -> None:
    access = CosmosAccess.of({"CHANGEFEED_COSMOS__KEY": STRING})
    nowhere = read_address("cosmos", "///d/c", known=())
    assert account_of(nowhere, access).endpoint == "https://acc.documents.azure.com:443/"
    same = read_address("cosmos", "//acc.documents.azure.com/d/c", known=())
    assert account_of(same, access).endpoint == "https://acc.documents.azure.com/"
    other = read_address("cosmos", "//other/d/c", known=())
    with pytest.raises(AddressWrong, match="host"):
        account_of(other, access)
    with pytest.raises(AddressWrong, match="names no host"):
        account_of(nowhere, CosmosAccess())


def test_half_a_connection_string_is_refused_and_not_repeated() -> None:
    access = CosmosAccess(key=Secret.of(f"AccountKey={SECRET}"))
    with pytest.raises(AddressWrong, match="lacks AccountEndpoint") as refused:
        account_of(read_address("cosmos", "///d/c", known=()), access)
    assert SECRET not in str(refused.value)


def test_without_a_key_this_machine_has_an_emulator_and_azure_asks_for_identity() -> None:
    here = read_address("cosmos+http", "//127.0.0.1:8081/d/c", known=())
    assert account_of(here, CosmosAccess()).key == Secret.of(EMULATOR_KEY)
    assert account_of(here, CosmosAccess(key=Secret.of("mine"))).key == Secret.of("mine")
    away = read_address("cosmos", "//acc.documents.azure.com/d/c", known=())
    assert account_of(away, CosmosAccess()).key is None


def test_plain_http_is_for_this_machine_only() -> None:
    away = read_address("cosmos+http", "//acc.documents.azure.com/d/c", known=())
    with pytest.raises(AddressWrong, match="use cosmos:// instead"):
        account_of(away, CosmosAccess(key=Secret.of(SECRET)))
    here = read_address("cosmos+http", "//127.0.0.1/d/c", known=())
    with pytest.raises(AddressWrong, match="Use cosmos:// instead"):
        account_of(here, CosmosAccess(token=Secret.of(SECRET)))


@pytest.mark.parametrize("key", ["no key!", "c2VjcmV0L", "c2Vj cmV0", "schlüssel"])
def test_a_key_that_is_not_base64_is_refused_and_not_shown(key: str) -> None:
    away = read_address("cosmos", "//acc.example/d/c", known=())
    string = f"AccountEndpoint=https://acc.example/;AccountKey={key}"
    for secret in (key, string):
        with pytest.raises(AddressWrong, match="base64") as refused:
            account_of(away, CosmosAccess(key=Secret.of(secret)))
        assert key not in str(refused.value)


@pytest.mark.parametrize(
    ("named", "addressed"),
    [
        ("https://acc.example:443/", "acc-westeurope.example"),
        ("https://acc-westeurope.example/", "acc.example"),
        ("https://localhost:8081/", "127.0.0.1:8081"),
    ],
)
def test_an_account_may_be_named_otherwise_than_in_the_connection_string(
    named: str, addressed: str
) -> None:
    string = Secret.of(f"AccountEndpoint={named};AccountKey=c2VjcmV0")
    read = read_address("cosmos", f"//{addressed}/d/c", known=())
    account = account_of(read, CosmosAccess(key=string))
    assert account.endpoint == f"https://{addressed}/"

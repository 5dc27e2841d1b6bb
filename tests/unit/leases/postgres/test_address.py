import pytest

from changefeed.leases.errors import ContainerRefused
from changefeed.leases.postgres.address import read_address
from changefeed.leases.postgres.connection import connect
from changefeed.leases.postgres.tables import decode, encode


def test_our_options_are_taken_out_and_the_others_left_to_the_client() -> None:
    address = read_address("//u@a,b:1/db?fleet=f%201&sslmode=verify-full&schema=s")
    assert (address.fleet, address.schema) == ("f 1", "s")
    assert address.dsn == "postgresql://u@a,b:1/db?sslmode=verify-full"
    assert address.statement_cache_size > 0


def test_an_address_is_printed_without_its_password() -> None:
    address = read_address("//u:secret@h/db?password=secret2")
    assert str(address) == "postgresql://h/db (changefeed, changefeed)"


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("db", "postgresql://USER@HOST"),
        ("//h/db?fleet=", "fleet= in the address"),
        ("//h/db?schema=", "schema= in the address"),
        ("//h/db?statement_cache_size=x", "no number"),
    ],
)
def test_a_wrong_address_is_refused_with_advice(place: str, says: str) -> None:
    with pytest.raises(ContainerRefused, match=says):
        read_address(place)


@pytest.mark.real_time
async def test_what_the_client_does_not_read_in_an_address_is_refused() -> None:
    with pytest.raises(ContainerRefused, match=r"postgresql://h:five/d.*'five'"):
        async with connect(read_address("//h:five/d")):
            pass


@pytest.mark.parametrize("text", ["", "a\0b", "\\0", "\\\\0\0", "c:\\x\\", "ü"])
def test_any_text_comes_back_from_one_without_nul(text: str) -> None:
    assert "\0" not in encode(text)
    assert decode(encode(text)) == text

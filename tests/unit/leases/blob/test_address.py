import pytest

from changefeed.leases.blob.address import BlobAddress, read_address
from changefeed.leases.errors import ContainerRefused


@pytest.mark.parametrize(
    ("scheme", "place", "wanted"),
    [
        (
            "blob",
            "//acc/c/Ns.net/Hub/$Default",
            ("https://acc.blob.core.windows.net", "c", "ns.net/hub/$default"),
        ),
        (
            "blob",
            "//acc.blob.core.usgovcloudapi.net/c",
            ("https://acc.blob.core.usgovcloudapi.net", "c", "changefeed"),
        ),
        ("blob", "///c/p", ("", "c", "p")),
        (
            "blob+http",
            "//127.0.0.1:10000/acc/c/p/q",
            ("http://127.0.0.1:10000/acc", "c", "p/q"),
        ),
    ],
)
def test_an_address_says_account_container_and_prefix(
    scheme: str, place: str, wanted: tuple[str, str, str]
) -> None:
    endpoint, container, prefix = wanted
    assert read_address(scheme, place) == BlobAddress(
        endpoint=endpoint, container=container, prefix=prefix
    )


@pytest.mark.parametrize(
    ("scheme", "place"),
    [
        ("blob", "acc/c"),
        ("blob", "//acc"),
        ("blob", "//"),
        ("blob", "///"),
        ("blob", "//acc/c//p"),
        ("blob", "//acc/c?sig=secret"),
        ("blob+http", "//h:1/acc"),
        ("blob+http", "//h:1"),
    ],
)
def test_a_wrong_address_is_refused(scheme: str, place: str) -> None:
    with pytest.raises(ContainerRefused, match="no address of leases"):
        read_address(scheme, place)


def test_an_address_with_a_secret_is_refused_without_showing_it() -> None:
    with pytest.raises(ContainerRefused, match="BACKENDS__BLOB__KEY") as refused:
        read_address("blob", "//user:SECRET@account/container")
    assert "SECRET" not in str(refused.value)

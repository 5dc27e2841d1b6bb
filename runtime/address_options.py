"""Options of addresses: what follows the ``?`` in ``SCHEME:PLACE?NAME=VALUE&NAME=VALUE``."""

from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl, quote, urlencode

from changefeed.runtime.paths import absolute


def read_options(query: str) -> dict[str, str]:
    """Return the options of an address, an empty value among them.

    ``%XX`` is decoded. A ``+`` stands for itself, as in PostgreSQL's own addresses, and is not
    the space of web forms: ids in Cosmos DB have it in the middle, and so have the prefixes
    that users copy from there.
    """
    return dict(parse_qsl(query.replace("+", "%2B"), keep_blank_values=True))


def write_options(options: Mapping[str, str]) -> str:
    """Return the query that ``read_options`` and the clients of stores read."""
    return urlencode(options, quote_via=quote)


def with_absolute_files(options: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Return the options with the files of these names found from any working directory."""
    return {k: str(absolute(v)) if k in names and v else v for k, v in options.items()}

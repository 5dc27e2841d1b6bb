"""Which version of the program this is: the same where it is installed and in a checkout."""

from changefeed import __version__


def software_version() -> str:
    return __version__

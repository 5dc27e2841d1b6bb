"""Which version of the program this is."""

from importlib.metadata import PackageNotFoundError, version


def software_version() -> str:
    """Return the version that is installed; empty where the program runs from its source."""
    try:
        return version("changefeed-host")
    except PackageNotFoundError:
        return ""

"""What needs pyarrow, which is imported when a segment is written or read."""

from types import ModuleType

from changefeed.feeds.errors import FeedRefused


def has_parquet() -> bool:
    """Whether segments can be written: without pyarrow, runs hold all records themselves."""
    try:
        segments_module()
    except FeedRefused:
        return False
    return True


def segments_module() -> ModuleType:
    """Import what writes and reads segments. Raise ``FeedRefused`` without pyarrow."""
    try:
        from changefeed.log.format import segments  # noqa: PLC0415 - it needs pyarrow
    except ImportError as error:
        raise FeedRefused(
            f"segments are Parquet, and pyarrow is not installed: "
            f"pip install 'changefeed-host[segments]' ({error})"
        ) from error
    return segments

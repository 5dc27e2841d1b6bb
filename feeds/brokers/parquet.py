"""What needs pyarrow, which is imported when a segment is written or read."""

from types import ModuleType

from changefeed.feeds.errors import FeedRefused


def segments_module() -> ModuleType:
    """Import what writes and reads segments. Raise ``FeedRefused`` without pyarrow."""
    try:
        from changefeed.feeds.eventlog import segments  # noqa: PLC0415 - it needs pyarrow
    except ImportError as error:
        raise FeedRefused(
            f"records of this cluster are in segments, which are Parquet, and pyarrow is not "
            f"installed at this broker: pip install 'changefeed-host[brokers]' ({error})"
        ) from error
    return segments

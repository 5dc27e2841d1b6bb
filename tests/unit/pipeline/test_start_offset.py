"""Where the first batch of a query begins, also after a crash in it."""

import dataclasses
import os
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from changefeed.leases.position_file import written
from changefeed.pipeline.checkpoint_dir import keep_start
from changefeed.pipeline.lease_offsets import leases_of
from changefeed.pipeline.source.addresses import open_access
from changefeed.pipeline.source.offsets import Offset
from changefeed.pipeline.source.planning import first_offset, next_offset
from changefeed.pipeline.start_offset import resolve
from changefeed.runtime.errors import UserError
from tests.support.pipeline_feeds import a_log, append_to

pytestmark = pytest.mark.real_time


def begin_batch(checkpoint: Path) -> None:
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "offsets/0").write_text("v1\n{}\n{}")


def test_a_first_batch_that_was_begun_begins_there_again_though_now_is_later(
    tmp_path: Path,
) -> None:
    feed, checkpoint = a_log(tmp_path / "log", {"a": 5}), tmp_path / "checkpoint"
    with closing(open_access(feed)) as access:
        start = resolve(str(checkpoint), "now", access)
        assert start == first_offset(access, "now")
        begin_batch(checkpoint)
        append_to(tmp_path / "log", {"a": 5})
        assert resolve(str(checkpoint), "now", access) == start
        assert resolve(str(checkpoint), "beginning", access) == start


def test_a_start_is_on_the_disk_with_its_name_before_the_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[str, bool]] = []

    def fsync(handle: int) -> None:
        synced.append(
            (str(Path(f"/proc/self/fd/{handle}").readlink()), (checkpoint / "_start").exists())
        )

    checkpoint = tmp_path / "checkpoint"
    monkeypatch.setattr(os, "fsync", fsync)
    keep_start(str(checkpoint), "{}")
    assert synced == [(f"{checkpoint}/_start.new", False), (str(checkpoint), True)]


def test_a_start_may_be_changed_until_a_batch_was_begun(tmp_path: Path) -> None:
    feed, checkpoint = a_log(tmp_path / "log", {"a": 5}), str(tmp_path / "checkpoint")
    with closing(open_access(feed)) as access:
        now = resolve(checkpoint, "now", access)
        beginning = resolve(checkpoint, "beginning", access)
        assert beginning == first_offset(access, "beginning") != now
        assert resolve(checkpoint, now.as_text(), access) == now


def test_a_query_starts_where_hosts_have_stopped_and_counts_on_from_their_epochs(
    tmp_path: Path,
) -> None:
    feed, file = a_log(tmp_path / "log", {"a": 5}, parts=1), tmp_path / "positions.json"
    with closing(open_access(feed)) as access:
        half = next_offset(access, first_offset(access, "beginning"), limit=3)
        leases = [replace(x, epoch=4) for x in leases_of(half, access)]
        file.write_bytes(written(leases))
        start = resolve("s3://bucket/checkpoint", f"file:{file}", access)
        assert start == dataclasses.replace(half, epoch=4)
        assert Offset.of(start.as_text()) == start
        with pytest.raises(UserError, match="cannot be read"):
            resolve("s3://bucket/checkpoint", f"file:{tmp_path}/none.json", access)


@pytest.mark.parametrize("text", [None, "rubbish"])
def test_a_checkpoint_without_the_start_of_a_batch_that_was_begun_is_refused(
    tmp_path: Path, text: str | None
) -> None:
    feed, checkpoint = a_log(tmp_path / "log", {"a": 5}), tmp_path / "checkpoint"
    begin_batch(checkpoint)
    if text is not None:
        (checkpoint / "_start").write_text(text)
    with (
        closing(open_access(feed)) as access,
        pytest.raises(UserError, match=f"{checkpoint}/_start"),
    ):
        resolve(str(checkpoint), "now", access)

"""Secrets in files."""

import os
from pathlib import Path

import pytest

from changefeed.runtime.errors import UserError
from changefeed.runtime.secret_file import read_secret


def test_what_surrounds_a_secret_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(" c2VjcmV0 \n")
    (tmp_path / "mounted").symlink_to(file)  # as Kubernetes mounts them
    assert read_secret(tmp_path / "mounted") == "c2VjcmV0"


@pytest.mark.parametrize("kind", ["missing", "empty", "folder", "pipe", "binary"])
def test_what_holds_no_secret_is_refused_by_its_name_and_never_waited_for(
    tmp_path: Path, kind: str
) -> None:
    file = tmp_path / kind
    match kind:
        case "empty":
            file.write_text("\n")
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case "binary":
            file.write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=str(file)):
        read_secret(file)

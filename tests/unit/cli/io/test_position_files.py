"""Files of positions are read, or refused with what is wrong with them."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from changefeed.cli.io import position_files
from changefeed.cli.io.position_files import read_positions
from changefeed.runtime.errors import UserError


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (b'"format": 2', "format 2, .* upgrade"),
        (b'"format": 0', "format 0, .* save the positions again"),
        (b'"format": "1"', r"\$.format"),
        (b'"format": 1, "until": 3', "until"),
        (b'"format": 1, "feed": 7', r"\$.feed"),
    ],
)
def test_a_document_of_another_format_is_refused(
    tmp_path: Path, wrong: bytes, says: str
) -> None:
    file = tmp_path / "saved"
    file.write_bytes(b'{"positions": [], %b}' % wrong)
    with pytest.raises(UserError, match=says):
        read_positions(str(file))


@pytest.mark.parametrize(
    "wrong", [b'"range": ""', b'"epoch": -1', b'"epoch": 9007199254740992', b'"ended": 0']
)
def test_an_entry_of_another_form_is_named(tmp_path: Path, wrong: bytes) -> None:
    file = tmp_path / "saved"
    good = b'{"range": "r0", "position": "0"}'
    file.write_bytes(
        b'{"positions": [%b, {"range": "r1", "position": "0", %b}], "format": 1}'
        % (good, wrong)
    )
    with pytest.raises(UserError, match=r"\$.positions\[1\]"):
        read_positions(str(file))


def test_what_goes_on_for_ever_is_no_file_of_positions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(position_files, "_MAX_BYTES", 2**20)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=_Endless()))
    with pytest.raises(UserError, match="too large"):
        read_positions("-")


class _Endless:
    """Has as much to read as is asked for, and never all."""

    def read(self, size: int) -> bytes:
        assert size > 0, "there is no end to read to"
        return b" " * size

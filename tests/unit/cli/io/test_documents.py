"""Documents for programs, whatever bytes a path has."""

import json

import pytest

from changefeed.cli.io.documents import as_json


@pytest.mark.parametrize("indented", [False, True])
def test_a_byte_that_is_no_text_is_escaped(*, indented: bool) -> None:
    found = as_json({"feed": "eventlog:\udcff", "b": "ü"}, indented=indented)
    assert json.loads(found) == {"feed": r"eventlog:\udcff", "b": "ü"}

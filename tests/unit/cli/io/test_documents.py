"""Documents for programs, whatever bytes a path has."""

import json

import pytest

from changefeed.cli.io.documents import as_json


def test_a_document_is_one_line_or_many() -> None:
    assert as_json({"a": "ü", "b": [1]}) == '{"a":"ü","b":[1]}'
    assert as_json({"a": 1}, indented=True) == '{\n  "a": 1\n}'


@pytest.mark.parametrize("indented", [False, True])
def test_a_byte_that_is_no_text_is_escaped(*, indented: bool) -> None:
    found = as_json({"feed": "eventlog:\udcff", "b": "ü"}, indented=indented)
    assert json.loads(found) == {"feed": r"eventlog:\udcff", "b": "ü"}

"""The site's page of the documents that commands print with ``--json``, and their schemas.

The schemas are made of the types of the documents. A new field may come at any time, so they
allow what they do not name.
"""

from collections.abc import Mapping
from typing import Any, Final

import jsonschema
import msgspec

from changefeed.cli.collection_status import LogStatus
from changefeed.fleet.letters import LetterDocument
from changefeed.fleet.status import FleetDocument
from changefeed.log.protocol.wire import Compaction
from changefeed.pipeline.body_shape import BodySchema
from changefeed.pipeline.status import TablesStatus
from changefeed.runtime.diagnostics import Diagnostic

DOCUMENTS: Final[Mapping[str, Any]] = {
    "status": FleetDocument,
    "doctor": list[Diagnostic],
    "dead-letters list": list[LetterDocument],
    "log status": LogStatus,
    "log compact": list[Compaction],
    "pipeline status": TablesStatus,
    "pipeline schema": BodySchema,
}
"""What each command prints."""

_HEAD = """\
# JSON of commands

With `--json` a command prints one JSON document on standard output; with `--json --watch` one
in each line, until Ctrl-C. Each has a JSON Schema, made from the code, as this page is. New
fields may come with any version: ignore what you do not know.

| command | schema |
|---|---|
"""


def page() -> str:
    return _HEAD + "".join(
        f'| `changefeed {x} --json` | <a href="{_file(x)}">{_file(x)}</a> |\n'
        for x in DOCUMENTS
    )


def files() -> Mapping[str, str]:
    """Return the schemas by their places in the site."""
    return {_file(x): msgspec.json.format(_encoded(schema(x))).decode() for x in DOCUMENTS}


def schema(command: str) -> dict[str, Any]:
    found = msgspec.json.schema(DOCUMENTS[command])
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **found}


def check_document(command: str, text: str) -> Any:
    """Return a document that a command has printed, if it is as its schema says, and has no
    field that this does not name.
    """
    document = msgspec.json.decode(text)
    jsonschema.validate(document, schema(command), cls=jsonschema.Draft202012Validator)
    known = msgspec.json.decode(text, type=DOCUMENTS[command])
    assert msgspec.json.decode(_encoded(known)) == document, "it has fields of no schema"
    return document


def _file(command: str) -> str:
    return f"schemas/{command.replace(' ', '-')}.json"


def _encoded(value: object) -> bytes:
    return msgspec.json.encode(value)

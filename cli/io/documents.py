"""Documents that commands print for programs."""

import json
import re
from typing import Final

import msgspec

_NO_TEXT: Final = re.compile("[\ud800-\udfff]")


def as_json(value: object, *, indented: bool = False) -> str:
    r"""Return a document in one line, or in many. A byte of a path that is no text is there
    as the text ``\udcff``: no parser takes it for half of something.
    """
    try:
        document = msgspec.json.encode(value)
    except UnicodeEncodeError:
        text = json.dumps(msgspec.to_builtins(value), ensure_ascii=False)
        document = _NO_TEXT.sub(lambda x: rf"\\u{ord(x[0]):x}", text).encode()
    return (msgspec.json.format(document, indent=2) if indented else document).decode()

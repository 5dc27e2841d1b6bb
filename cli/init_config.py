"""``changefeed init-config``: a file with all settings, each with what is said about it."""

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from changefeed.cli.config_file import write_config
from changefeed.cli.exit_codes import exit_on_error
from changefeed.host.settings import Settings
from changefeed.runtime.settings_schema import Entry, SectionDoc, sections

_WIDTH = 96
_HEAD = """\
All settings of a host. A line that begins with # and a name is a setting with its default:
take away the # to set it. Times are in seconds. What stands here gives way to the
environment (CHANGEFEED_LEASES__EXPIRATION=20), and both give way to the command line.
"""


def init_config(
    file: Annotated[Path, typer.Argument(help="The file to write.")] = Path("changefeed.toml"),
    *,
    force: Annotated[bool, typer.Option("--force", help="Overwrite it.")] = False,
) -> None:
    """Write a file with all settings and their defaults, for --config."""
    with exit_on_error():
        write_config(file, config_text(), force=force)


def config_text() -> str:
    """Return a TOML file in which every setting stands as a comment."""
    blocks = ["".join(_comment(_HEAD)), *("".join(_section(x)) for x in sections(Settings))]
    return "\n".join(blocks)


def _section(section: SectionDoc) -> Iterator[str]:
    yield from _comment(section.text)
    yield f"[{'.'.join(section.path)}]\n"
    for entry in section.entries:
        yield from _entry(entry)


def _entry(entry: Entry) -> Iterator[str]:
    text = entry.text
    if entry.choices:
        text = f"{text} One of: {', '.join(entry.choices)}.".strip()
    yield from _comment(text)
    if entry.default is None:
        yield f"#{entry.name} =\n"
    else:
        yield f"#{entry.name} = {_toml(entry.default)}\n"


def _comment(text: str) -> Iterator[str]:
    for paragraph in text.replace("``", "").strip().split("\n\n") if text else ():
        for line in textwrap.wrap(" ".join(paragraph.split()), _WIDTH - 2):
            yield f"# {line}\n"


def _toml(value: Any) -> str:
    """Numbers, booleans, text and empty tables are written in TOML as in JSON."""
    return json.dumps(value)

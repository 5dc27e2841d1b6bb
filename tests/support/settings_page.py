"""The site's page of settings, made of the settings themselves."""

import json
from collections.abc import Iterator

from changefeed.host.settings import Settings
from changefeed.runtime.settings_schema import Entry, SectionDoc, sections

_HEAD = """\
# Settings

Every setting of a host, with its default. This page is made from the settings themselves. Times
are in seconds, or have a unit: `500ms`, `90s`, `30m`, `2h`, `7d`.

A value is taken from the first of these places that has one:

1. the command line: `--set leases.expiration=20`, or a flag of its own (`--feed`, `--leases`,
   `--observer`, `--option key=value`, `--name`, `--start`);
2. the environment: `CHANGEFEED_LEASES__EXPIRATION=20`, two underscores between section and
   name; a whole section is JSON, and so is a table such as `observer.options`;
3. the file that `--config` names, or else `CHANGEFEED_CONFIG`: TOML, and
   `changefeed config host` writes one with all of this in it;
4. the default.

A secret (`web.token`, `cosmos.key`) may be in a file instead, as Kubernetes and Docker mount
them: `_file` behind its name says which, as in `CHANGEFEED_WEB__TOKEN_FILE`.

Paths are relative to the working directory in which the process starts, also after an observer
has changed it.

What is wrong in them is reported with its place before anything is started, and the command
ends with 2. Names that do not exist are wrong, too.
"""


def page() -> str:
    return "\n".join([_HEAD, *(_section(x) for x in sections(Settings))])


def _section(section: SectionDoc) -> str:
    head = f"## `{'.'.join(section.path)}`\n"
    text = f"\n{_inline(section.text)}\n" if section.text else ""
    if not section.entries:
        return f"{head}{text}"
    rows = "".join(_rows(section.entries))
    return f"{head}{text}\n| setting | default | meaning |\n|---|---|---|\n{rows}"


def _rows(entries: tuple[Entry, ...]) -> Iterator[str]:
    for entry in entries:
        meaning = _inline(entry.text)
        if entry.choices:
            choices = ", ".join(f"`{x}`" for x in entry.choices)
            meaning = f"{meaning} One of: {choices}.".strip()
        default = "" if entry.default is None else f"`{json.dumps(entry.default)}`"
        yield f"| `{entry.name}` | {default} | {meaning} |\n"


def _inline(text: str) -> str:
    """Put a docstring on one line, with code as Markdown has it."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")

"""The site's page of settings, made of the settings themselves."""

import json
from collections.abc import Iterator

from changefeed.host.settings import Settings
from changefeed.log.brokers.settings import BrokerSettings
from changefeed.pipeline.settings import PipelineSettings
from changefeed.runtime.settings_schema import Entry, SectionDoc, sections

MODELS: dict[str, type] = {
    "Hosts": Settings,
    "Brokers": BrokerSettings,
    "Pipelines": PipelineSettings,
}

_HEAD = """\
# Settings

Every setting, with its default, made from the code. Times are in seconds, or have a unit:
`500ms`, `90s`, `30m`, `2h`, `7d`.

A process takes a setting from the first of these places that has it:

1. the command line: `--set leases.expiration=20`, or a flag of its own (`--feed`, `--leases`,
   `--observer`, `--option key=value`, `--name`, `--start`);
2. the environment: `CHANGEFEED_LEASES__EXPIRATION=20`, with two underscores between section and
   name. Of brokers and pipelines: `CHANGEFEED_BROKER__WEB__PORT=7071` and
   `CHANGEFEED_PIPELINE__LATEST__INTERVAL=60`. A whole section, or a table, is JSON;
3. the file that `--config` names, or else `CHANGEFEED_CONFIG`: TOML. `changefeed config host`,
   `changefeed config broker` and `changefeed config pipeline` write one with all of this in it;
4. the default.

A secret (`web.token`, `cosmos.key`) may be in a file instead, as Kubernetes and Docker mount
them: `_file` behind its name says which, as in `CHANGEFEED_WEB__TOKEN_FILE`.

Paths are relative to the working directory in which the process starts, also after an observer
has changed it. A wrong setting, or one that does not exist, is reported with its place, and the
command ends with 2 before it starts anything.
"""


def page() -> str:
    return "\n".join([_HEAD, *(_part(name, model) for name, model in MODELS.items())])


def _part(name: str, model: type) -> str:
    return "\n".join([f"## {name}\n", *(_section(x) for x in sections(model))])


def _section(section: SectionDoc) -> str:
    head = f"### `{'.'.join(section.path)}`\n" if section.path else ""
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

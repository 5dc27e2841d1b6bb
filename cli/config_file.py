"""Files with all settings, as ``config`` writes them: made of the settings themselves."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from changefeed.runtime.settings_schema import Entry, SectionDoc, sections

_WIDTH = 96
_HEAD = """\
All settings of a {kind}. A line that begins with # and a name is a setting with its default:
take away the # to set it. Times are in seconds, or have a unit (500ms, 90s, 30m, 2h, 7d), sizes
in bytes, or as 64MiB. The environment overrides this file ({example}), and
the command line overrides both.
"""
_EXAMPLES = {
    "host": "CHANGEFEED_LEASES__EXPIRATION=20",
    "pipeline": "CHANGEFEED_PIPELINE__LATEST__INTERVAL=60",
    "broker": "CHANGEFEED_BROKER__WEB__PORT=7071",
}
_MODELS = {
    "host": "changefeed.host.settings:Settings",
    "pipeline": "changefeed.pipeline.settings:PipelineSettings",
    "broker": "changefeed.log.brokers.settings:BrokerSettings",
}


_PROCESSORS = """\
# Several feeds in one process: each processor has a feed, leases and an observer of its own,
# and may have settings of cosmos and backends. What it does not say is taken from above.
#[processors.orders.feed]
#address = "eventlog:data/orders"
#[processors.orders.leases]
#address = "sqlite:data/orders.db"
#[processors.orders.observer]
#name = "shop:Orders"
"""


def settings_text(kind: str) -> str:
    """Return a file with all settings of a ``host``, a ``pipeline`` or a ``broker``."""
    module, _, name = _MODELS[kind].partition(":")
    head = _HEAD.format(kind=kind, example=_EXAMPLES[kind])
    model = getattr(import_module(module), name)
    text = config_text(head, model)
    return f"{text}\n{_PROCESSORS}" if model.of_processors else text


def config_text(head: str, model: type) -> str:
    """Return a TOML file with every setting as a comment, but those that have no default:
    these have an example as their value.
    """
    blocks = ["".join(_comment(head))]
    for section in sections(model):
        blocks.append("".join(_section(section)))
        blocks += ["".join(_items(x)) for x in section.entries if x.items]
    return "\n".join(blocks)


def _section(section: SectionDoc) -> Iterator[str]:
    if section.path:
        yield from _comment(section.text)
        yield f"[{'.'.join(section.path)}]\n"
    for entry in section.entries:
        if not entry.items:
            yield from _entry(entry)


def _items(entry: Entry) -> Iterator[str]:
    """Yield one section of a list of them, all of it as a comment."""
    yield from _comment(entry.text)
    yield f"#[[{entry.name}]]\n"
    for one in entry.items:
        yield from _comment(one.text)
        yield f"#{one.name} = {_toml(one.default if one.example is None else one.example)}\n"


def _entry(entry: Entry) -> Iterator[str]:
    text = entry.text
    if entry.choices:
        text = f"{text} One of: {', '.join(entry.choices)}.".strip()
    if entry.default is None and entry.example is not None and not entry.required:
        text = f"{text} For example: {_toml(entry.example)}"
    yield from _comment(text)
    if entry.required:
        yield f"{entry.name} = {_toml(entry.example)}\n"
    elif entry.default is None:
        yield f"#{entry.name} =\n"
    else:
        yield f"#{entry.name} = {_toml(entry.default)}\n"


def _comment(text: str) -> Iterator[str]:
    for paragraph in text.replace("``", "").strip().split("\n\n") if text else ():
        for line in textwrap.wrap(
            " ".join(paragraph.split()), _WIDTH - 2, break_on_hyphens=False
        ):
            yield f"# {line}\n"


def _toml(value: Any) -> str:
    """Numbers, booleans, text and empty tables are written in TOML as in JSON."""
    if isinstance(value, Mapping) and value:
        return "{ " + ", ".join(f"{k} = {_toml(v)}" for k, v in value.items()) + " }"
    return json.dumps(value)

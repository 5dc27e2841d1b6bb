"""How an observer is found by its name, and what is said where it cannot be."""

import sys
from collections.abc import Sequence
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from changefeed.feeds.feed import Change
from changefeed.observers import registry
from changefeed.observers.observer import Observer
from changefeed.observers.registry import load_observer, observer
from changefeed.runtime.errors import UserError
from tests.support import make

SHOP = """
seen = []

class Orders:
    def __init__(self, table="orders"):
        self.table = table

    async def process(self, changes):
        seen.append((self.table, len(changes)))

class nested:
    Inner = Orders

async def save(changes):
    seen.append(("save", len(changes)))
"""
UNPRINTABLE = """
class Mute(BaseException):
    def __str__(self):
        raise ValueError
"""
REGISTERED = """
from changefeed.observers.registry import observer

@observer("late-orders")
async def save(changes):
    seen.append(len(changes))

seen = []
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty directory, and leave no module, path or name behind."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    monkeypatch.setattr(registry, "_registered", {})
    return tmp_path


def write(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def refusal(name: str, options: dict[str, object] | None = None) -> str:
    with pytest.raises(UserError) as refused:
        load_observer(name, options)
    return str(refused.value)


async def use(made: Observer) -> None:
    context = make.context()
    await made.open(context)
    await made.process(context, [make.change(1), make.change(2)])


# By module and attribute


@pytest.mark.parametrize(
    ("file", "name", "options", "seen"),
    [
        ("shop.py", "shop:Orders", {"table": "late"}, ("late", 2)),
        ("shop.py", "shop:nested.Inner", None, ("orders", 2)),
        ("shop.py", "shop:save", None, ("save", 2)),
        ("company/shop.py", "company.shop:Orders", None, ("orders", 2)),
    ],
)
async def test_an_attribute_of_a_module_in_the_current_directory_is_found(
    here: Path,
    file: str,
    name: str,
    options: dict[str, object] | None,
    seen: tuple[str, int],
) -> None:
    write(here, file, SHOP)
    await use(load_observer(name, options)())
    assert sys.modules[name.partition(":")[0]].seen == [seen]


def test_the_current_directory_cannot_hide_the_standard_library(here: Path) -> None:
    sys.modules.pop("colorsys", None)
    write(here, "colorsys.py", SHOP)
    said = refusal("colorsys:Orders")
    assert "has no 'Orders'" in said
    assert "./colorsys.py is hidden by" in said


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("shop:Order", ["'Order'", "did you mean 'Orders'?", "/shop.py"]),
        ("shoop.late:Orders", ["no module 'shoop'"]),
        *(
            (name, [f"{name!r} is not of the form 'package.module:Class'"])
            for name in ("shop:", ":Orders", "shop:Orders()", "./shop.py:Orders", "a:b:c")
        ),
        ("order", ["did you mean 'orders'?", "count, http, jsonl, log"]),
        ("zzz", ["no observer 'zzz'", "count, http, jsonl, log"]),
        ("none", ["/none.py", "registers none"]),
        ("two", ["registers 2 (early-orders, late-orders)"]),
        ("jsonl", ["'pth'"]),
    ],
)
def test_a_name_that_leads_to_no_observer_is_refused(
    here: Path, name: str, facts: Sequence[str]
) -> None:
    @observer("orders")
    async def save(changes: Sequence[Change]) -> None: ...

    write(here, "shop.py", SHOP)
    write(here, "none.py", "x = 1\n")
    early = REGISTERED.replace("late-", "early-").replace("save", "b")
    write(here, "two.py", REGISTERED + early)
    said = refusal(name, {"pth": "x"})
    assert [x for x in facts if x not in said] == []


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("import os\n\n1 / 0\n", 3, "ZeroDivisionError: division by zero"),
        ("\nimport not_installed\n", 2, "ModuleNotFoundError: No module named 'not_installed'"),
        ("def f(:\n", 1, "SyntaxError: invalid syntax"),
        ("import sys\nsys.exit(3)\n", 2, "SystemExit: 3"),
        ("import asyncio\nraise asyncio.CancelledError\n", 2, "CancelledError"),
        ("class Panic(BaseException): ...\nraise Panic('index')\n", 2, "Panic: index"),
        (f"{UNPRINTABLE}raise Mute\n", 5, "Mute: (its text cannot be had: ValueError)"),
        ("raise ValueError('no such town: \\ud800')", 1, "ValueError: no such town: \\ud800"),
        ("def __getattr__(name):\n    raise ImportError('C')\n", 2, "ImportError: C"),
    ],
)
def test_a_module_that_cannot_be_imported_is_shown_with_its_line_and_error(
    here: Path, text: str, line: int, what: str
) -> None:
    write(here, "shop.py", text)
    with pytest.raises(UserError) as refused:
        load_observer("shop:Orders")
    assert f"{here}/shop.py, line {line}: {what}" in str(refused.value)
    assert type(refused.value.__cause__).__name__ == what.partition(":")[0]


@pytest.mark.parametrize("name", ["shop.orders:Orders", "shop.orders"])
def test_what_a_package_raises_refuses_the_module_in_it(here: Path, name: str) -> None:
    write(here, "shop/__init__.py", "class Panic(BaseException): ...\nraise Panic\n")
    write(here, "shop/orders.py", SHOP)
    assert f"{here}/shop/__init__.py, line 2: Panic" in refusal(name)


@pytest.mark.parametrize("name", ["shop:Orders", "shop"])
def test_ctrl_c_while_a_module_is_imported_is_ctrl_c(here: Path, name: str) -> None:
    write(here, "shop.py", "raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        load_observer(name)


# By a registered name


async def test_a_module_that_registers_one_observer_names_it(here: Path) -> None:
    write(here, "company/orders.py", REGISTERED)
    await use(load_observer("company.orders")())
    assert sys.modules["company.orders"].seen == [2]
    await use(load_observer("late-orders")())


def test_a_module_that_is_loaded_again_registers_its_observers_again(here: Path) -> None:
    write(here, "shop.py", REGISTERED)
    load_observer("shop:save")
    del sys.modules["shop"]
    load_observer("shop:save")
    load_observer("late-orders")


@pytest.mark.parametrize("name", ["", "shop:orders", "taken"])
def test_a_name_that_is_taken_or_could_not_be_found_again_is_refused(name: str) -> None:
    @observer("taken")
    async def one(changes: Sequence[Change]) -> None: ...

    async def two(changes: Sequence[Change]) -> None: ...

    with pytest.raises(UserError):
        observer(name)(two)


# By an installed name


async def test_an_installed_name_stands_for_one_thing_or_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install(*values: str) -> None:
        found = EntryPoints(EntryPoint("x", value, registry.GROUP) for value in values)
        monkeypatch.setattr(registry, "entry_points", lambda **_: found)

    install("a:One", "b:Two", "a:One")
    assert refusal("x").endswith("a:One, b:Two")
    write(here, "shop.py", SHOP)
    monkeypatch.syspath_prepend(here)
    install("shop:nested.Inner", "shop:nested.Inner")
    await use(load_observer("x")())
    assert sys.modules["shop"].seen == [("orders", 2)]
    for value in ("shop", "shop:"):
        install(value)
        assert f"declares 'x' as {value!r}, which is not of the form" in refusal("x")


# Options

TYPED = """
import functools
from pathlib import Path
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from nowhere import Unknown

class Own: ...

class Typed:
    def __init__(self, *, every: int = 1, path: Path = Path(), rate: float = 1.0,
                 names: list[str] = [], table: str = "", own: Own = Own(), **rest: int): ...
    async def process(self, changes): ...

class Unresolved:
    def __init__(self, *, every: "Unknown" = 1, many: "list[int]" = [],
                 own: list["Unknown"] = [], at: "Path.nowhere" = 1, rate: "float" = 1.0): ...
    async def process(self, changes): ...

class Inherits(Unresolved): ...

made = functools.partial(Unresolved, every=2)
"""
RATE = "rate='fast' (float)"
MANY = "many=['x'] (list[int])"


@pytest.mark.parametrize(
    ("name", "options", "wrong"),
    [
        ("Typed", {"every": "many"}, "every='many' (int)"),
        ("Typed", {"every": "5"}, "every='5' (int)"),
        ("Typed", {"rate": "fast"}, RATE),
        ("Typed", {"names": [1]}, "names=[1] (list[str])"),
        ("Typed", {"table": 5}, "table=5"),
        # An annotation that cannot be resolved leaves the others to be checked.
        ("Unresolved", {"every": "any", "rate": "fast"}, RATE),
        ("Unresolved", {"own": "any", "many": ["x"]}, MANY),
        ("Inherits", {"every": "any", "rate": "fast"}, RATE),
        ("made", {"own": "any", "many": ["x"]}, MANY),
    ],
)
def test_an_option_of_a_wrong_type_is_refused_by_the_observers_annotations(
    here: Path, name: str, options: dict[str, object], wrong: str
) -> None:
    write(here, "typed.py", TYPED)
    assert wrong in refusal(f"typed:{name}", options)
